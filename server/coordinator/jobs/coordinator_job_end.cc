// A job's end, good or bad.
#include <iterator>

#include "common/log.h"
#include "common/policy/sync_mode.h"
#include "proto/placement.h"
#include "server/coordinator/jobs/coordinator_job.h"

namespace gradbus {
namespace {

bool is_failure_code(uint32_t code) {
  return code > uint32_t(Code::kOk) && code <= uint32_t(Code::kInternal);
}

// Such as "GB-P101".
std::string code_of(const Status& error) {
  const std::string_view code = code_in(error.message());
  return code.empty() ? "other" : "GB-" + std::string(code);
}

}  // namespace

Status repeat_failure(const AgentInfo& info, const v1::Error& error) {
  const std::string& text = error.message();
  const auto code = static_cast<Code>(error.code());
  if (is_failure_code(error.code()) && text.starts_with("GB-"))
    return Status(code, clean_text(text, 1000));
  // A lack on that node, such as of memory: ranks of others are told where.
  if (is_failure_code(error.code()) && !code_in(text).empty())
    return Status(code, info.name + ": " + clean_text(text, 1000));
  return short_error("D602", info.name + " ended the job without a valid reason: " + text);
}

bool CoordinatorJob::rank_left(uint64_t agent, const v1::RankLeft& message, Nanos now) {
  if (!live()) return true;
  const uint32_t rank = message.rank();
  if (!membership_.owns(agent, rank)) return false;
  // Another process wanted to join as this rank, and its refusal crossed its end.
  const uint64_t join = membership_.find(rank)->join;
  if (message.job_id() == 0 && join != 0 && message.join() != join) return true;
  if (message.clean() && state_ == State::kRunning) {
    leave_cleanly(rank, now);
    return true;
  }
  std::string text = title() + ": " + membership_.describe_rank(rank);
  text.append(message.clean() ? " left before the job started" : " died");
  if (!message.detail().empty()) text.append(": ").append(clean_text(message.detail(), 200));
  RankRecord& record = *membership_.find(rank);
  if (record.counters.step() > 0) {
    text.append(", at step ").append(std::to_string(record.counters.step()));
  }
  record.state = message.clean() ? RankRecord::State::kLeft : RankRecord::State::kLost;
  record.left_at = now;
  fail(short_error("P101", text), now);
  return true;
}

void CoordinatorJob::leave_cleanly(uint32_t rank, Nanos now) {
  RankRecord& record = *membership_.find(rank);
  record.state = RankRecord::State::kLeft;
  record.left_at = now;
  stalls_.forget(rank);
  if (!membership_.joined().empty()) {
    std::vector<LiveTensors::Tensor> retired;
    registrations_.leave(rank, retired);
    return tell_retired(retired);
  }
  v1::CoordinatorMessage message;
  message.mutable_job_ended()->set_job_id(identity_.id);
  tell_everyone(message);
  end(State::kDone, now);
}

bool CoordinatorJob::agent_failure(uint64_t agent, const v1::JobFailure& message, Nanos now) {
  const AgentInfo* info = find_agent_info(agent);
  if (info == nullptr) return false;
  // The job goes on without a shard that was lost. One that came back has no part of it yet.
  if (info->shard && (info->lost || !shards_told_.contains(agent))) return true;
  if (live()) fail(repeat_failure(*info, message.error()), now);
  return true;
}

// An agent whose ranks have all left may go without harm; see Stalls for ranks that still need it.
void CoordinatorJob::agent_lost(uint64_t agent, const std::string& why, Nanos now) {
  AgentInfo* info = find_agent_info(agent);
  if (info == nullptr || !live()) return;
  info->lost = true;
  if (info->shard) return shard_lost(agent, *info, why, now);
  const RankSet ranks = membership_.joined_through(agent);
  for (const uint32_t rank : ranks) {
    RankRecord& record = *membership_.find(rank);
    record.state = RankRecord::State::kLost;
    record.left_at = now;
  }
  if (ranks.empty()) return;
  fail(short_error("P104", title() + ": lost " + rank_phrase(ranks) + ": agent " + why), now);
}

// A job that has put nothing on it goes on, but may not from now on. One that has copies of all
// that it had there goes on; where there are other shards it has copies again after its next fence.
void CoordinatorJob::shard_lost(uint64_t shard, AgentInfo& info, const std::string& why,
                                Nanos now) {
  const Status gone =
      short_error("P103", title() + ": its shard " + info.name + " is lost: " + why);
  if (!registrations_.uses_shards()) return registrations_.refuse_shards(gone);
  const auto index = static_cast<uint32_t>(std::distance(shards_.begin(), shards_.find(shard)));
  if (Status end = may_go_on_without(index, title() + ": shard " + why); !end.ok())
    return fail(std::move(end), now);
  if (place_of(index, shard_maps_.back().members) >= 0) registrations_.refuse_single_copies(gone);
  v1::CoordinatorMessage message;
  auto* lost = message.mutable_shard_lost();
  lost->set_job_id(identity_.id);
  lost->set_shard(index);
  std::string text = title() + " goes on without shard " + info.name + ": " + why;
  for (const auto& [number, replicas] : registrations_.places()) {
    const std::vector<uint32_t>& members = shard_maps_[number].members;
    const int place = place_of(index, members);
    if (place < 0) continue;
    const auto shards = static_cast<uint32_t>(members.size());
    const auto at = static_cast<uint32_t>(place);
    text += "; what it held is on " + shard_name(members[backup_of(at, shards)]) +
            " and what it had copies of is on " + shard_name(members[backed_up_by(at, shards)]) +
            ", each in one copy now: chunks of " + tensors_on_shards();
    break;
  }
  lost->set_text(text);
  outbox_->note(lost->text());
  tell_event(EventKind::kShards, lost->text(), now);
  tell_everyone(message);
  place_anew("shard " + info.name + " is lost");
}

// Both shards of a chunk would be lost, or the only one.
Status CoordinatorJob::may_go_on_without(uint32_t shard, const std::string& lost) const {
  for (const auto& [number, replicas] : registrations_.places()) {
    const std::vector<uint32_t>& members = shard_maps_[number].members;
    const int place = place_of(shard, members);
    if (place < 0) continue;
    if (replicas < 2) return short_error("P103", lost);
    const auto shards = static_cast<uint32_t>(members.size());
    const auto at = static_cast<uint32_t>(place);
    for (const uint32_t other : {backup_of(at, shards), backed_up_by(at, shards)}) {
      const AgentInfo& info = shards_.at(members[other]);
      if (info.lost && members[other] != shard)
        return short_error("P103", lost + "; shard " + info.name +
                                       ", lost before, had the other copy of what was there");
    }
  }
  return {};
}

std::string CoordinatorJob::tensors_on_shards() const {
  std::string text;
  size_t listed = 0;
  for (const Registrations::Listed& tensor : registrations_.list(kStatusTensorsMax)) {
    if (!is_on_shards(tensor.ready->spec().mode())) continue;
    if (listed++ < kListedMax)
      text.append(text.empty() ? "" : ", ").append(in_quotes(tensor.ready->name()));
  }
  return listed <= kListedMax ? text : text + ", ...";
}

AgentInfo* CoordinatorJob::find_agent_info(uint64_t agent) {
  const auto shard = shards_.find(agent);
  return shard == shards_.end() ? membership_.find_agent(agent) : &shard->second;
}

void CoordinatorJob::tell_everyone(const v1::CoordinatorMessage& message) {
  outbox_->send_all(membership_.agents(), message);
  if (!shards_.empty()) outbox_->send_all(shards_, message);
}

void CoordinatorJob::fail(Status status, Nanos now) {
  if (!live()) return;
  error_ = std::move(status);
  outbox_->note(title() + " failed: " + error_.message());
  if (state_ == State::kJoining) {
    refuse_all_joined(error_);
  } else {
    tell_failed(error_);
  }
  end(State::kFailed, now);
}

void CoordinatorJob::refuse_all_joined(const Status& status) {
  for (const uint32_t rank : membership_.joined()) {
    const RankRecord& record = *membership_.find(rank);
    refuse_join(*outbox_, record.agent, identity_.name, rank, record.join, status);
  }
}

void CoordinatorJob::tell_failed(const Status& status) {
  v1::CoordinatorMessage message;
  auto* failed = message.mutable_job_failed();
  failed->set_job_id(identity_.id);
  failed->set_job(identity_.name);
  *failed->mutable_error() = to_proto(status);
  tell_everyone(message);
}

void CoordinatorJob::end(State state, Nanos now) {
  state_ = state;
  ended_at_ = now;
  placement_at_end_ = placement_in_use();
  registrations_.clear();
  outbox_->count_end(state == State::kDone ? "done" : code_of(error_));
  if (state == State::kDone) outbox_->note(title() + " done");
  if (state == State::kDone) return tell_event(EventKind::kJobFinished, "all ranks have left", now);
  const bool stopped = error_.message().starts_with("GB-J405");
  tell_event(stopped ? EventKind::kJobStopped : EventKind::kJobFailed, error_.message(), now);
}

void CoordinatorJob::tell_event(EventKind kind, const std::string& text, Nanos now) {
  outbox_->events().add(kind, "", identity_.name, text, now);
}

}  // namespace gradbus
