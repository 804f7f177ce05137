#include "worker_agent/job/worker_commands.h"

#include <sys/epoll.h>

#include "common/guarded.h"
#include "data_plane/engine.h"
#include "worker_agent/data/worker_data_job.h"

namespace gradbus {

void carry_out(Engine& engine, StartJob command) {
  engine.begin(std::make_unique<WorkerDataJob>(std::move(command), &engine.transport()));
}

void carry_out(Engine& engine, AddTensor command) {
  WorkerDataJob* const job = engine.find<WorkerDataJob>(command.job);
  if (job == nullptr) return;
  const Status added = guarded([&] { return job->add_tensor(std::move(command)); });
  if (!added.ok()) engine.report_broken(*job, added);
}

// Its socket leaves the epoll when it is closed. It is watched for edges only, because the socket
// of an ended process stays readable.
void carry_out(Engine& engine, StartNccl command) {
  WorkerDataJob* const job = engine.find<WorkerDataJob>(command.job);
  if (job == nullptr) return;
  // If this fails, it is checked when the engine wakes.
  (void)engine.watch(command.queue->wait_fd(), EPOLLET);
  job->start_nccl(std::move(command.queue), std::move(command.events));
}

void carry_out(Engine& engine, const OrderNccl& command) {
  if (WorkerDataJob* const job = engine.find<WorkerDataJob>(command.job); job != nullptr)
    job->order_nccl(command.order);
}

}  // namespace gradbus
