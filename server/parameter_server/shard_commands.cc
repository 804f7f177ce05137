#include "server/parameter_server/shard_commands.h"

#include "common/guarded.h"
#include "data_plane/engine.h"
#include "server/parameter_server/ps_data_job.h"

namespace gradbus {

void carry_out(Engine& engine, StartShardJob command) {
  engine.begin(std::make_unique<PsDataJob>(std::move(command), &engine.transport()));
}

void carry_out(Engine& engine, const AddShardTensor& command) {
  PsDataJob* const job = engine.find<PsDataJob>(command.job);
  if (job == nullptr) return;
  const Status added = guarded([&] { return job->add_tensor(command); });
  if (!added.ok()) engine.report_broken(*job, added);
}

}  // namespace gradbus
