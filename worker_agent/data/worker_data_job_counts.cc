// What the engine counts of a job's rounds, for metrics and for the heartbeat
// (data_plane/job_traffic.h).
#include "worker_agent/data/worker_data_job.h"

namespace gradbus {

void WorkerDataJob::count_round(const EngineTensor& tensor) const {
  JobTraffic::Operations& counted = start_.traffic->of(tensor.kind());
  counted.rounds.add(1);
  counted.bytes.add(tensor.bytes());
  counted.duration.observe(static_cast<uint64_t>(transport_->now() - tensor.begun_at()));
}

}  // namespace gradbus
