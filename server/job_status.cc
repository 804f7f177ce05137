// A job as `gradbus status` shows it.
#include <algorithm>

#include "server/job.h"

namespace gradbus {
namespace {

constexpr Nanos kStallShown = 2500 * kMillisecond;  // notices are renewed every second

const char* state_name(Job::State state) {
  switch (state) {
    case Job::State::kJoining: return "joining";
    case Job::State::kRunning: return "running";
    case Job::State::kFailed: return "failed";
    case Job::State::kDone: return "done";
  }
  return "?";
}

const char* rank_state_name(RankRecord::State state) {
  switch (state) {
    case RankRecord::State::kJoined: return "joined";
    case RankRecord::State::kLeft: return "left";
    case RankRecord::State::kLost: return "lost";
  }
  return "?";
}

v1::RankStatus describe_rank(uint32_t rank, const RankRecord& record, const std::string& agent,
                             uint64_t most_patient_ns) {
  v1::RankStatus status;
  status.set_rank(rank);
  status.set_agent(agent);
  status.set_pid(record.pid);
  status.set_state(rank_state_name(record.state));
  *status.mutable_counters() = record.counters;
  status.set_late_ns(most_patient_ns - record.counters.wait_ns());
  status.set_bytes_per_s(static_cast<uint64_t>(record.bytes_per_s));
  status.set_operations_per_s(record.operations_per_s);
  return status;
}

void add_ranks(const Roll& roll, v1::JobStatus& status) {
  uint64_t most_patient_ns = 0;
  for (const auto& [rank, record] : roll.ranks()) {
    most_patient_ns = std::max<uint64_t>(most_patient_ns, record.counters.wait_ns());
  }
  for (const auto& [rank, record] : roll.ranks()) {
    *status.add_ranks() = describe_rank(rank, record, roll.agent_name(rank), most_patient_ns);
  }
}

}  // namespace

v1::JobStatus Job::describe(Nanos now, size_t tensors_max) const {
  v1::JobStatus status;
  status.set_job(identity_.name);
  status.set_job_id(identity_.id);
  status.set_state(state_name(state_));
  status.set_epoch(1);
  status.set_world_size(roll_.world_size());
  status.set_age_ms(static_cast<uint64_t>((now - created_at_) / kMillisecond));
  status.set_transport(transport_);
  add_ranks(roll_, status);
  for (const auto& spec : registrations_.list(tensors_max)) *status.add_tensors() = spec;
  for (const auto& [agent, card] : roll_.agents()) {
    status.set_sent_bytes(status.sent_bytes() + card.sent_bytes);
    status.set_received_bytes(status.received_bytes() + card.received_bytes);
  }
  if (!error_.ok()) *status.mutable_error() = to_proto(error_);
  if (state_ == State::kRunning && now - stall_at_ < kStallShown) status.set_stall(stall_);
  return status;
}

}  // namespace gradbus
