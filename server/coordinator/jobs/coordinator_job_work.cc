// A running job: registrations, stalls, counters.
#include <algorithm>
#include <cmath>

#include "common/policy/sync_mode.h"
#include "proto/control.h"
#include "proto/numbers.h"
#include "server/coordinator/jobs/coordinator_job.h"

namespace gradbus {

// The ready tensors of one RegisterTensors, in one message each way.
struct CoordinatorJob::Answers {
  v1::CoordinatorMessage to_all;
  v1::CoordinatorMessage to_one;
};

namespace {

void add_ready(uint64_t job, v1::ReadyTensor ready, v1::CoordinatorMessage& message) {
  auto* tensors = message.mutable_tensors_ready();
  tensors->set_job_id(job);
  *tensors->add_tensors() = std::move(ready);
}

// Of a communicator: bytes that mean something to NCCL alone.
std::string clean_id(const std::string& id) { return id.size() <= kNcclIdBytesMax ? id : ""; }

}  // namespace

const v1::Fidelity* CoordinatorJob::fidelity(const std::string& tensor) const {
  const v1::Fidelity* newest = nullptr;
  for (const auto& [agent, info] : membership_.agents()) {
    const auto found = info.fidelity.find(tensor);
    if (found != info.fidelity.end() &&
        (newest == nullptr || found->second.round() > newest->round()))
      newest = &found->second;
  }
  return newest;
}

v1::CoordinatorMessage CoordinatorJob::refused_message(const std::string& name,
                                                       const Status& status,
                                                       const RankSet& ranks) const {
  v1::CoordinatorMessage message;
  auto* refused = message.mutable_tensor_refused();
  refused->set_job_id(identity_.id);
  refused->set_name(name.size() <= kTensorNameBytesMax ? name : clean_text(name, 252));
  *refused->mutable_error() = to_proto(status);
  refused->mutable_ranks()->Add(ranks.begin(), ranks.end());
  return message;
}

void CoordinatorJob::answer(uint64_t agent, uint32_t rank, const v1::TensorSpec& spec,
                            Answers& answers) {
  using Kind = Registrations::Answer::Kind;
  Registrations::Answer answer = registrations_.ask(rank, spec);
  switch (answer.kind) {
    case Kind::kWait: return;
    case Kind::kReadyForAll:
      if (answer.ready.nccl()) nccl_.ask(answer.ready.id());
      return add_ready(identity_.id, std::move(answer.ready), answers.to_all);
    case Kind::kReadyForOne:
      return add_ready(identity_.id, std::move(answer.ready), answers.to_one);
    case Kind::kRefusedToAll:
      return outbox_->send_all(membership_.agents(),
                               refused_message(spec.name(), answer.refusal, answer.refused));
    case Kind::kRefusedToOne:
      return outbox_->send(agent, refused_message(spec.name(), answer.refusal, answer.refused));
  }
}

bool CoordinatorJob::register_tensors(uint64_t agent, const v1::RegisterTensors& message,
                                      Nanos now) {
  if (!live()) return true;
  if (state_ != State::kRunning || !membership_.owns(agent, message.rank())) return false;
  if (message.tensors_size() > kTensorsPerMessageMax) {
    fail(short_error("D602", membership_.describe_rank(message.rank()) + " registers " +
                                 std::to_string(message.tensors_size()) + " tensors at once; " +
                                 std::to_string(kTensorsPerMessageMax) + " are allowed"),
         now);
    return false;
  }
  stalls_.forget(message.rank());
  Answers answers;
  for (const v1::TensorSpec& spec : message.tensors()) answer(agent, message.rank(), spec, answers);
  if (answers.to_all.has_tensors_ready()) tell_everyone(answers.to_all);
  if (answers.to_one.has_tensors_ready()) {
    answers.to_one.mutable_tensors_ready()->add_ranks(message.rank());
    outbox_->send(agent, std::move(answers.to_one));
  }
  return true;
}

bool CoordinatorJob::unregister_tensors(uint64_t agent, const v1::UnregisterTensors& message) {
  if (!live()) return true;
  if (state_ != State::kRunning || !membership_.owns(agent, message.rank())) return false;
  bool sensible = true;
  std::vector<LiveTensors::Tensor> retired;
  // An agent batches both: the last view may be gone by the time that it sends.
  for (const uint32_t id : message.viewed())
    sensible = registrations_.release_but_views(message.rank(), id) && sensible;
  for (const uint32_t id : message.tensors())
    sensible = registrations_.release(message.rank(), id, retired) && sensible;
  tell_retired(retired);
  return sensible;
}

void CoordinatorJob::tell_retired(const std::vector<LiveTensors::Tensor>& retired) {
  for (size_t first = 0; first < retired.size(); first += kRetiredPerMessageMax) {
    const size_t end = std::min(first + kRetiredPerMessageMax, retired.size());
    v1::CoordinatorMessage message;
    auto* told = message.mutable_tensors_retired();
    told->set_job_id(identity_.id);
    for (size_t i = first; i < end; ++i) told->add_tensors(retired[i].id);
    tell_everyone(message);
  }
  for (const LiveTensors::Tensor& tensor : retired) {
    stalls_.forget_rounds(tensor.name);
    if (registrations_.ready_spec(tensor.name) != nullptr) continue;
    for (const auto& [agent, info] : membership_.agents()) {
      AgentInfo& known = *find_agent_info(agent);
      known.fidelity.erase(tensor.name);
      known.staleness.erase(tensor.name);
    }
  }
}

bool CoordinatorJob::nccl_report(uint64_t agent, const v1::NcclReport& message) {
  if (!live()) return true;
  const auto info = membership_.agents().find(agent);
  if (state_ != State::kRunning || info == membership_.agents().end()) return false;
  Status status;
  if (message.error().code() != 0) status = repeat_failure(info->second, message.error());
  const NcclAgreement::Verdict verdict =
      nccl_.report(agent, message.tensor(), status, clean_id(message.id()));
  if (verdict.connect) {
    v1::CoordinatorMessage connect;
    connect.mutable_nccl_connect()->set_job_id(identity_.id);
    connect.mutable_nccl_connect()->set_id(nccl_.id());
    outbox_->send_all(membership_.agents(), std::move(connect));
  }
  if (verdict.settled.empty()) return verdict.sensible;
  v1::CoordinatorMessage message_to_all;
  auto* settled = message_to_all.mutable_nccl_settled();
  settled->set_job_id(identity_.id);
  settled->mutable_tensors()->Add(verdict.settled.begin(), verdict.settled.end());
  if (!verdict.why_not.ok()) *settled->mutable_error() = to_proto(verdict.why_not);
  outbox_->send_all(membership_.agents(), std::move(message_to_all));
  return true;
}

bool CoordinatorJob::rank_blocked(uint64_t agent, const v1::RankBlocked& message, Nanos now) {
  if (!live()) return true;
  if (state_ != State::kRunning || !membership_.owns(agent, message.rank())) return false;
  const std::string& tensor = message.tensor();
  if (message.round() > 0 && registrations_.ready_spec(tensor) == nullptr) return false;
  // The answer to its registration is on the wire: it waits no more.
  if (message.round() == 0 && !registrations_.waits(message.rank(), tensor)) return true;
  switch (stalls_.blocked(message, now)) {
    case Stalls::Due::kNothing: break;
    case Stalls::Due::kNotice: notify_stall(tensor, message.round(), now); break;
    case Stalls::Due::kQuery: ask_progress(message); break;
  }
  return true;
}

void CoordinatorJob::ask_progress(const v1::RankBlocked& blocked) {
  v1::CoordinatorMessage message;
  auto* query = message.mutable_progress_query();
  query->set_job_id(identity_.id);
  query->set_tensor(blocked.tensor());
  query->set_round(blocked.round());
  outbox_->send_all(membership_.agents(), std::move(message));
}

bool CoordinatorJob::progress_report(uint64_t agent, const v1::ProgressReport& message, Nanos now) {
  if (!membership_.agents().contains(agent)) return false;
  if (state_ != State::kRunning) return !live();
  if (stalls_.report(agent, message)) notify_stall(message.tensor(), message.round(), now);
  return true;
}

Status CoordinatorJob::change_mode(const v1::ChangeModeRequest& request, Nanos now) {
  if (state_ != State::kRunning) return short_error("J406", title() + " is not running");
  if (!is_printable_name(request.group(), kTensorNameBytesMax))
    return short_error(
        "O911", "the group " + in_quotes(request.group()) + " is no pattern of parameters' names",
        "name parameters as in a policy file: \"embedding.*\", \"*\"");
  if (mode_changes_made_ == kModeChangesMax)
    return short_error(
        "O904", title() + " has changed its modes " + std::to_string(kModeChangesMax) + " times",
        "start it again in the final mode");
  const Result<SyncMode> mode = parse_mode(clean_text(request.mode(), kModeBytesMax));
  if (!mode.ok()) return mode.status();
  if (mode.value().placement > 0)
    return short_error("O911",
                       title() + ": mode " + mode.value().canonical +
                           ": the job sets placement= itself when its shards change",
                       "leave it out");
  GRADBUS_RETURN_IF_ERROR(registrations_.may_use(mode.value(), title()));
  v1::CoordinatorMessage message;
  auto* changed = message.mutable_mode_changed();
  changed->set_job_id(identity_.id);
  changed->set_group(request.group());
  changed->set_mode(mode.value().canonical);
  outbox_->send_all(membership_.agents(), std::move(message));
  const std::string reason = request.reason().empty() ? "no reason was given" : request.reason();
  outbox_->note(title() + ": " + in_quotes(request.group()) + " changes to mode " +
                mode.value().canonical + " at the next fence: " + clean_text(reason));
  tell_event(EventKind::kMode,
             in_quotes(request.group()) + " changes to mode " + mode.value().canonical + ": " +
                 clean_text(reason),
             now);
  ++mode_changes_made_;
  if (mode.value().canonical != "sync") loss_rule_.forget();
  if (mode_changes_.size() == kModeChangesShown) mode_changes_.pop_front();
  mode_changes_.push_back({request.group(), mode.value().canonical, clean_text(reason), now});
  return {};
}

void CoordinatorJob::notify_stall(const std::string& tensor, uint64_t round, Nanos now) {
  std::string sentence = stalls_.sentence(tensor, round, now);
  if (sentence.empty()) return;
  v1::CoordinatorMessage message;
  auto* notice = message.mutable_stall_notice();
  notice->set_job_id(identity_.id);
  notice->set_tensor(tensor);
  notice->set_round(round);
  notice->set_text(sentence);
  outbox_->send_all(membership_.agents(), std::move(message));
  if (stall_.empty() || now - stall_at_ > kStallShown)
    tell_event(EventKind::kStalled, sentence, now);
  stall_ = std::move(sentence);
  stall_at_ = now;
}

void CoordinatorJob::tick(Nanos now) {
  check_start_timeout(now);
  if (state_ != State::kRunning) return;
  if (place_at_ != 0 && now >= place_at_) place_anew("shards have come");
  if (const auto verdict = stalls_.judge(now)) apply(*verdict, now);
  if (late_rule_.look(membership_)) change_late_mode(now);
  if (loss_rule_.look(membership_, now)) change_back(now);
}

// Only where all gradients are exchanged synchronously: somebody has chosen the modes of the
// others. Modes of parameters are made of synchronous tensors, too, which front ends call
// "local...".
bool CoordinatorJob::all_sync() const {
  return std::ranges::all_of(
      registrations_.list(kStatusTensorsMax), [](const Registrations::Listed& tensor) {
        return tensor.ready->spec().mode().empty() && !tensor.ready->name().starts_with("local");
      });
}

void CoordinatorJob::change_late_mode(Nanos now) {
  const auto percent = [](double share) {
    return std::to_string(static_cast<int>(std::lround(100 * share))) + " %";
  };
  const std::string reason = "ranks lost " + percent(late_rule_.lateness()) + " of the last " +
                             std::to_string(options_.late.windows) + " s to a late one, mostly " +
                             membership_.describe_rank(late_rule_.latest_rank()) +
                             "; the bound is " + percent(options_.late.share_max);
  if (!all_sync())
    return outbox_->note(title() + ": " + reason + "; its modes were chosen, so they stay");
  v1::ChangeModeRequest request;
  request.set_group("*");
  request.set_mode(options_.late.mode);
  request.set_reason("by rule: " + reason);
  if (const Status changed = change_mode(request, now); !changed.ok())
    outbox_->note(title() + ": " + reason + ", but " + changed.message());
}

// Where something else than sync was asked for last, or from the beginning.
void CoordinatorJob::change_back(Nanos now) {
  const bool is_sync = mode_changes_.empty() ? all_sync() : mode_changes_.back().mode == "sync";
  if (is_sync) return;
  v1::ChangeModeRequest request;
  request.set_group("*");
  request.set_mode("sync");
  request.set_reason("by rule: " + loss_rule_.reason());
  if (const Status changed = change_mode(request, now); !changed.ok())
    outbox_->note(title() + ": " + loss_rule_.reason() + ", but " + changed.message());
}

void CoordinatorJob::apply(const Stalls::Verdict& verdict, Nanos now) {
  if (verdict.refused_names.empty()) return fail(verdict.error, now);
  for (const std::string& name : verdict.refused_names) {
    outbox_->send_all(membership_.agents(),
                      refused_message(name, verdict.error, registrations_.waiting(name)));
    registrations_.drop_pending(name);
  }
}

namespace {

void count_rank(RankRecord& record, const v1::RankCounters& counters, Nanos now) {
  record.rates.add({now, counters.operations(), counters.bytes(), counters.wait_ns()});
  record.counters = counters;
  record.counted_at = now;
}

}  // namespace

bool CoordinatorJob::count(uint64_t agent, const v1::JobCounters& counters, Nanos now) {
  AgentInfo* info = find_agent_info(agent);
  if (info == nullptr) return false;
  if (!live()) return true;
  info->sent_bytes = counters.sent_bytes();
  info->received_bytes = counters.received_bytes();
  info->uncompressed_bytes = counters.uncompressed_bytes();
  info->compressed_bytes = counters.compressed_bytes();
  bool sensible = true;
  for (const v1::Fidelity& fidelity : counters.fidelity()) {
    const bool known = registrations_.ready_spec(fidelity.tensor()) != nullptr;
    if (known) info->fidelity[fidelity.tensor()] = fidelity;
    sensible = sensible && known;
  }
  for (const v1::Staleness& staleness : counters.staleness()) {
    const bool known = registrations_.ready_spec(staleness.tensor()) != nullptr;
    if (known) info->staleness[staleness.tensor()] = staleness;
    sensible = sensible && known;
  }
  for (const v1::RankCounters& rank : counters.ranks()) {
    RankRecord* record = membership_.find(rank.rank());
    const bool own = record != nullptr && record->agent == agent;
    if (own) count_rank(*record, rank, now);
    sensible = sensible && own;
  }
  return sensible;
}

}  // namespace gradbus
