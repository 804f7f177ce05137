// The report of a node about its running job to a restarted coordinator.
#include "common/utf8.h"
#include "proto/control.h"
#include "worker_agent/control/worker_control_job.h"

namespace gradbus {
void WorkerControlJob::add_ranks(v1::RunningJob& part) const {
  for (size_t local = 0; local < local_ranks_.size(); ++local) {
    const AttachedClient* client = clients_[local];
    v1::RunningRank& rank = *part.add_ranks();
    rank.set_rank(local_ranks_[local]);
    rank.set_pid(pids_[local]);
    // a rank that died has ended the job
    rank.set_left(client == nullptr || client->state == AttachedClient::State::kLeft);
  }
}

void WorkerControlJob::add_tensor(uint32_t id, const PlacedTensor& placed,
                                  v1::RunningJob& part) const {
  v1::RunningTensor& tensor = *part.add_tensors();
  *tensor.mutable_ready() = placed.ready;
  tensor.set_nccl_waits(deferred_.contains(id));
  for (size_t local = 0; local < local_ranks_.size(); ++local) {
    if (placed.released[local]) tensor.add_released(local_ranks_[local]);
    if (placed.viewed[local] && !placed.released[local]) tensor.add_viewed(local_ranks_[local]);
  }
}

std::vector<v1::AgentMessage> WorkerControlJob::announce(uint64_t incarnation) {
  incarnation_ = incarnation;
  std::vector<v1::AgentMessage> parts;
  const auto begin = [&]() -> v1::RunningJob& {
    v1::RunningJob& part = *parts.emplace_back().mutable_running_job();
    part.set_job_id(id());
    part.set_index(agent_index_);
    return part;
  };
  v1::RunningJob& first = begin();
  *first.mutable_started() = started_;
  first.set_tensor_last(tensor_last_);
  add_ranks(first);
  if (shards_changed_) *first.mutable_shards_changed() = *shards_changed_;
  if (failed_) {
    first.mutable_failed()->set_code(static_cast<uint32_t>(failure_.code()));
    first.mutable_failed()->set_message(as_utf8(failure_.message()));
  }
  for (const auto& [id, placed] : tensors_) {
    if (failed_ || placed.retired) continue;
    v1::RunningJob* part = parts.back().mutable_running_job();
    if (parts.size() == 1 || part->tensors_size() == kTensorsPerRunningJobMax) part = &begin();
    add_tensor(id, placed, *part);
  }
  parts.back().mutable_running_job()->set_last(true);
  return parts;
}

}  // namespace gradbus
