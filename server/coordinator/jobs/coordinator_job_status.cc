// A job as `gradbus status` shows it.
#include <algorithm>
#include <map>
#include <set>

#include "server/coordinator/jobs/coordinator_job.h"

namespace gradbus {
namespace {

const char* state_name(CoordinatorJob::State state) {
  switch (state) {
    case CoordinatorJob::State::kJoining: return "joining";
    case CoordinatorJob::State::kRunning: return "running";
    case CoordinatorJob::State::kFailed: return "failed";
    case CoordinatorJob::State::kDone: return "done";
  }
  return "?";
}

const char* rank_state_name(RankRecord::State state, bool job_lives) {
  switch (state) {
    case RankRecord::State::kJoined: return job_lives ? "joined" : "ended";
    case RankRecord::State::kLeft: return "left";
    case RankRecord::State::kLost: return "lost";
  }
  return "?";
}

// How long the ranks that still work have waited for others.
struct Patience {
  uint64_t most_ns = 0;    // since the start
  double most_share = 0;   // of the last seconds
  double least_share = 1;  // the same
};

Patience patience_of(const Membership& membership, Nanos now) {
  Patience patience;
  for (const auto& [rank, record] : membership.ranks()) {
    if (record.state != RankRecord::State::kJoined) continue;
    patience.most_ns = std::max<uint64_t>(patience.most_ns, record.counters.wait_ns());
    if (!record.rates.full(now)) continue;
    patience.most_share = std::max(patience.most_share, record.rates.waiting(now));
    patience.least_share = std::min(patience.least_share, record.rates.waiting(now));
  }
  return patience;
}

// The others wait for a slow rank, and it waits for nobody.
bool is_slow(const RankRecord& record, const Patience& patience, Nanos now) {
  constexpr double kShareMin = 0.2;  // less is noise of the machine
  return record.rates.full(now) && patience.most_share - patience.least_share >= kShareMin &&
         record.rates.waiting(now) <= patience.least_share + kShareMin / 4;
}

v1::RankStatus describe_rank(uint32_t rank, const RankRecord& record, const Patience& patience,
                             bool job_lives, Nanos now) {
  v1::RankStatus status;
  status.set_rank(rank);
  status.set_pid(record.pid);
  status.set_state(rank_state_name(record.state, job_lives));
  *status.mutable_counters() = record.counters;
  // A rank that has ended has no rates, and nobody waits for it.
  if (!job_lives || record.state != RankRecord::State::kJoined) return status;
  status.set_late_ns(patience.most_ns - record.counters.wait_ns());
  status.set_bytes_per_s(static_cast<uint64_t>(record.rates.bytes_per_s(now)));
  status.set_operations_per_s(record.rates.operations_per_s(now));
  status.set_waiting(record.rates.waiting(now));
  status.set_slow(is_slow(record, patience, now));
  return status;
}

void add_ranks(const Membership& membership, bool job_lives, Nanos now, v1::JobStatus& status) {
  const Patience patience = patience_of(membership, now);
  for (const auto& [rank, record] : membership.ranks()) {
    *status.add_ranks() = describe_rank(rank, record, patience, job_lives, now);
    status.mutable_ranks()->rbegin()->set_agent(membership.agent_name(rank));
  }
}

// All agents measure in the same rounds and find the same angle and error; residuals are their own.
void add_fidelity(const Membership& membership, v1::JobStatus& status) {
  std::map<std::string, v1::Fidelity> merged;
  for (const auto& [agent, info] : membership.agents()) {
    for (const auto& [tensor, fidelity] : info.fidelity) {
      v1::Fidelity& shown = merged.try_emplace(tensor, fidelity).first->second;
      const double ratio = std::max(shown.residual_ratio(), fidelity.residual_ratio());
      if (fidelity.round() > shown.round()) shown = fidelity;
      shown.set_residual_ratio(ratio);
    }
  }
  for (const auto& [tensor, fidelity] : merged) *status.add_fidelity() = fidelity;
}

}  // namespace

// What shards hold is as old as each node has found it; what is delayed, as its mode says.
void CoordinatorJob::add_staleness(v1::JobStatus& status) const {
  const auto add = [&](const std::string& mode, const std::string& agent, double mean,
                       uint32_t most) {
    auto* shown = status.add_staleness();
    shown->set_mode(mode);
    shown->set_agent(agent);
    shown->set_mean(mean);
    shown->set_most(most);
  };
  std::set<std::string> modes;
  for (const v1::TensorSpec& tensor : status.tensors()) modes.insert(tensor.mode());
  std::set<std::string> held;  // modes of which shards hold the parameters
  for (const std::string& name : modes) {
    const Result<SyncMode> mode = parse_mode(name);
    if (!mode.ok()) continue;
    if (mode.value().delay > 0) add(name, "", mode.value().delay, mode.value().delay);
    if (mode.value().holds_parameters()) held.insert(name);
  }
  for (const auto& [id, info] : membership_.agents()) {
    std::map<std::string, v1::Staleness> of_modes;
    for (const auto& [tensor, last] : info.staleness) {
      const v1::TensorSpec* const spec = registrations_.ready_spec(tensor);
      if (spec == nullptr) continue;  // the job has ended
      v1::Staleness& of = of_modes[spec->mode()];
      of.set_rounds(of.rounds() + last.rounds());
      of.set_steps(of.steps() + last.steps());
      of.set_most(std::max(of.most(), last.most()));
    }
    for (const auto& [mode, of] : of_modes)
      if (held.contains(mode))
        add(mode, info.name, static_cast<double>(of.steps()) / std::max<uint64_t>(of.rounds(), 1),
            of.most());
  }
}

void CoordinatorJob::add_shards(v1::JobStatus& status) const {
  if (shard_maps_.empty()) return;
  const ShardMap& shard_map = shard_maps_[placement_in_use()];
  uint32_t index = 0;
  for (const auto& [id, info] : shards_) {
    auto* shard = status.add_shards();
    shard->set_name(info.name);
    shard->set_sent_bytes(info.sent_bytes);
    shard->set_received_bytes(info.received_bytes);
    shard->set_lost(info.lost);
    const int place = place_of(index, shard_map.members);
    const bool waits = place_of(index++, shard_maps_.back().members) >= 0 || place_at_ != 0;
    shard->set_waits(place < 0 && !info.lost && waits);
    if (place < 0) continue;
    shard->set_share(shard_map.of.shares[static_cast<size_t>(place)]);
    shard->set_beside(shard_map.of.beside[static_cast<size_t>(place)]);
  }
}

CoordinatorJob::Figures CoordinatorJob::figures(Nanos now) const {
  Figures figures;
  const Patience patience = patience_of(membership_, now);
  uint64_t least_wait = patience.most_ns;
  for (const auto& [rank, record] : membership_.ranks()) {
    if (record.state != RankRecord::State::kJoined) continue;
    ++figures.ranks;
    figures.slow_ranks += is_slow(record, patience, now) ? 1 : 0;
    least_wait = std::min<uint64_t>(least_wait, record.counters.wait_ns());
  }
  figures.late_ns = patience.most_ns - least_wait;
  figures.stalled = state_ == State::kRunning && now - stall_at_ < kStallShown && !stall_.empty();
  return figures;
}

v1::JobStatus CoordinatorJob::describe(Nanos now, size_t tensors_max) const {
  v1::JobStatus status;
  status.set_job(identity_.name);
  status.set_job_id(identity_.id);
  status.set_state(state_name(state_));
  status.set_epoch(1);
  status.set_uid(identity_.owner.uid);
  status.set_user(identity_.owner.name);
  status.set_world_size(membership_.world_size());
  status.set_age_ms(static_cast<uint64_t>((now - created_at_) / kMillisecond));
  status.set_transport(transport_);
  if (!live()) {
    const bool stopped = error_.message().starts_with("GB-J405");
    status.set_outcome(state_ == State::kDone ? "finished" : stopped ? "stopped" : "failed");
    status.set_ended_ms(static_cast<uint64_t>((now - ended_at_) / kMillisecond));
  }
  add_ranks(membership_, live(), now, status);
  for (const Registrations::Listed& tensor : registrations_.list(tensors_max)) {
    *status.add_tensors() = tensor.ready->spec();
    auto* plan = status.add_plans();
    plan->set_algorithm(tensor.ready->algorithm());
    plan->set_chunk_elements(tensor.ready->chunk_elements());
    plan->set_communicator(tensor.ready->communicator());
    plan->set_why(std::string(tensor.why));
    if (!tensor.reason.empty()) plan->mutable_why()->append("; ").append(tensor.reason);
  }
  for (const auto& [agent, info] : membership_.agents()) {
    status.set_sent_bytes(status.sent_bytes() + info.sent_bytes);
    status.set_received_bytes(status.received_bytes() + info.received_bytes);
    status.set_uncompressed_bytes(status.uncompressed_bytes() + info.uncompressed_bytes);
    status.set_compressed_bytes(status.compressed_bytes() + info.compressed_bytes);
  }
  add_fidelity(membership_, status);
  add_shards(status);
  add_staleness(status);
  for (const ModeChange& change : mode_changes_) {
    auto* shown = status.add_mode_changes();
    shown->set_group(change.group);
    shown->set_mode(change.mode);
    shown->set_reason(change.reason);
    shown->set_age_ms(static_cast<uint64_t>((now - change.at) / kMillisecond));
  }
  status.set_nccl_tensors(nccl_.by_nccl());
  status.set_no_nccl(nccl_.why_not().message());
  if (!error_.ok()) *status.mutable_error() = to_proto(error_);
  if (state_ == State::kRunning && now - stall_at_ < kStallShown) status.set_stall(stall_);
  return status;
}

}  // namespace gradbus
