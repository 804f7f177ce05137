#include "server/coordinator/jobs/returning_jobs.h"

#include <algorithm>

#include "common/trust/secret.h"
#include "proto/numbers.h"
#include "proto/placement.h"
#include "proto/tensor_ids.h"
#include "server/coordinator/jobs/coordinator_options.h"
#include "server/coordinator/members/text.h"
#include "server/coordinator/members/user.h"

namespace gradbus {
namespace {

constexpr size_t kTransportBytesMax = 64;

Status lost(const std::string& job, const std::string& why) {
  return short_error("J410", "job " + in_quotes(job) + ": " + why);
}

// Ranks and agents are numbered as a coordinator numbers them.
bool members_fit(const v1::JobStarted& started) {
  if (started.members_size() < 1 || started.members_size() > static_cast<int>(kRanksMax) ||
      started.agents_size() < 1 || started.agents_size() > started.members_size())
    return false;
  std::vector<uint32_t> local(static_cast<size_t>(started.agents_size()));
  for (int i = 0; i < started.members_size(); ++i) {
    const v1::JobMember& member = started.members(i);
    if (member.rank() != static_cast<uint32_t>(i) || member.agent_index() >= local.size() ||
        member.local_rank() != local[member.agent_index()]++ ||
        member.local_rank() >= kLocalRanksMax)
      return false;
  }
  return std::ranges::all_of(local, [](uint32_t ranks) { return ranks > 0; });
}

// One agent alone needs no transport.
bool transport_fits(const v1::JobStarted& started) {
  if (started.transport().empty()) return started.agents_size() == 1 && started.shards_size() == 0;
  return is_printable_name(started.transport(), kTransportBytesMax);
}

bool below(const google::protobuf::RepeatedField<uint32_t>& numbers, int bound) {
  return numbers.size() <= static_cast<int>(kPlacementEntriesMax) &&
         std::ranges::all_of(
             numbers, [bound](uint32_t number) { return number < static_cast<uint32_t>(bound); });
}

Status check_started(const v1::JobStarted& started, bool shard) {
  const bool fits = transport_fits(started) && below(started.placement(), started.shards_size()) &&
                    is_printable_name(started.job(), kJobNameBytesMax) && started.job_id() != 0 &&
                    members_fit(started) && started.user().size() <= kUserBytesMax &&
                    (started.secret().size() == kSecretBytes || shard) &&
                    started.shards_size() <= static_cast<int>(kPlacementEntriesMax);
  if (fits) return {};
  return short_error("D602", "a node announced a running job \"" + clean_text(started.job(), 40) +
                                 "\" with values that cannot be");
}

bool sets_fit(const v1::ShardsChanged& changed) {
  return changed.shards_size() <= static_cast<int>(kPlacementEntriesMax) &&
         std::ranges::all_of(changed.placements(), [&](const v1::ShardSet& set) {
           return set.members_size() > 0 && below(set.members(), changed.shards_size()) &&
                  below(set.pattern(), set.members_size());
         });
}

// A shard has no secret, and one that came later was told of more shards. A coordinator that was
// started again in between has told it other ids of agents, and no numbers of joins.
bool same_job(const v1::JobStarted& a, const v1::JobStarted& b, bool with_shards) {
  const auto essence = [with_shards](v1::JobStarted started) {
    if (!with_shards) return started.SerializeAsString();
    started.clear_secret();
    started.clear_shards();
    started.clear_placement();
    for (v1::JobMember& member : *started.mutable_members()) member.clear_join();
    for (v1::JobAgent& agent : *started.mutable_agents()) agent.clear_agent_id();
    return started.SerializeAsString();
  };
  return essence(a) == essence(b);
}

// By the announcement's own words.
const v1::JobAgent* place_in(const v1::RunningJob& part) {
  const auto at = [&](const auto& places) {
    const bool is_one = part.index() < static_cast<uint32_t>(places.size());
    return is_one ? &places.Get(static_cast<int>(part.index())) : nullptr;
  };
  if (!part.shard()) return at(part.started().agents());
  const v1::JobAgent* later = at(part.shards_changed().shards());
  return later != nullptr ? later : at(part.started().shards());
}

Status take_tensors(ReturningJob& job, ReturningNode& node, const v1::RunningJob& part) {
  for (const v1::RunningTensor& tensor : part.tensors()) {
    const uint32_t id = tensor.ready().id();
    if (id == 0 || id >= kTensorIdsMax || node.tensors.size() >= kTensorsMax)
      return lost(job.name(), node.info.name + " announced tensors that cannot be");
    node.tensors[id] = tensor;
  }
  node.tensor_last = std::min(std::max(node.tensor_last, part.tensor_last()), kTensorIdsMax - 1);
  return {};
}

Status take_ranks(const ReturningJob& job, ReturningNode& node, const v1::RunningJob& part) {
  for (const v1::RunningRank& rank : part.ranks()) {
    const bool own =
        rank.rank() < static_cast<uint32_t>(job.started.members_size()) &&
        job.started.members(static_cast<int>(rank.rank())).agent_index() == part.index();
    if (!own || part.shard())
      return lost(job.name(), node.info.name + " announced ranks that are not its own");
    node.ranks[rank.rank()] = rank;
  }
  return {};
}

// That the node may speak of this job, which others may have announced. One that may not changes
// nothing for them.
Status check_first_part(const ReturningJob& job, const AgentInfo& info,
                        const v1::RunningJob& part) {
  const v1::JobStarted& started = part.started();
  GRADBUS_RETURN_IF_ERROR(check_started(started, part.shard()));
  if (started.job_id() != part.job_id() || !sets_fit(part.shards_changed()))
    return short_error("D602", info.name + " announced a running job with values that cannot be");
  const v1::JobAgent* place = place_in(part);
  const bool reachable =
      started.transport().empty() || info.addresses.contains(started.transport());
  if (place == nullptr || place->name() != info.name || part.shard() != info.shard || !reachable)
    return lost(started.job(), info.name + " announced it and has no place in it");
  if (job.id != 0 && !same_job(job.started, started, part.shard() || !job.knows_secret()))
    return lost(started.job(), info.name + " announced it otherwise than other nodes did");
  return {};
}

void take_start(ReturningJob& job, const v1::RunningJob& part) {
  if (job.id == 0 || (!part.shard() && !job.knows_secret())) job.started = part.started();
  job.id = part.job_id();
  const v1::ShardsChanged& changed = part.shards_changed();
  if (changed.placements_size() > job.changed.placements_size() ||
      changed.shards_size() > job.changed.shards_size())
    job.changed = changed;
}

Status take_part(ReturningJob& job, uint64_t agent, const AgentInfo& info,
                 const v1::RunningJob& part) {
  ReturningNode& node = (part.shard() ? job.shards : job.agents)[part.index()];
  const bool is_new = node.agent == 0 && part.has_started();
  if (!is_new && node.agent != agent)
    return lost(job.name(), info.name + " announced two of its nodes, or one that another has");
  node.agent = agent;
  node.info = info;
  GRADBUS_RETURN_IF_ERROR(take_ranks(job, node, part));
  GRADBUS_RETURN_IF_ERROR(take_tensors(job, node, part));
  node.whole = node.whole || part.last();
  if (!part.has_failed()) return {};
  const std::string& text = part.failed().message();
  if (!text.starts_with("GB-"))
    return lost(job.name(), info.name + " announced that it has failed");
  const uint32_t code = std::clamp<uint32_t>(part.failed().code(), 1, uint32_t(Code::kInternal));
  return Status(static_cast<Code>(code), clean_text(text, 1000));
}

}  // namespace

uint32_t ReturningJob::shard_count() const {
  return static_cast<uint32_t>(std::max(started.shards_size(), changed.shards_size()));
}

bool ReturningJob::has_all_agents() const {
  return agents.size() == static_cast<size_t>(started.agents_size()) &&
         std::ranges::all_of(agents, [](const auto& node) { return node.second.whole; });
}

// A shard that was lost before does not come.
bool ReturningJob::whole() const {
  if (!has_all_agents()) return false;
  for (uint32_t index = 0; index < shard_count(); ++index) {
    const bool was_lost = static_cast<int>(index) < changed.shards_size() &&
                          changed.shards(static_cast<int>(index)).lost();
    const auto at = shards.find(index);
    if (!was_lost && (at == shards.end() || !at->second.whole)) return false;
  }
  return true;
}

std::vector<uint64_t> ReturningJob::announcers() const {
  std::vector<uint64_t> all;
  for (const auto& [index, node] : agents) all.push_back(node.agent);
  for (const auto& [index, node] : shards) all.push_back(node.agent);
  return all;
}

bool ReturningJob::has(uint64_t agent) const {
  const std::vector<uint64_t> all = announcers();
  return std::ranges::find(all, agent) != all.end();
}

std::string ReturningJob::missing() const {
  std::string text;
  size_t listed = 0;
  for (int index = 0; index < started.agents_size(); ++index) {
    const auto at = agents.find(static_cast<uint32_t>(index));
    if (at != agents.end() && at->second.whole) continue;
    if (listed++ < kListedMax)
      text.append(text.empty() ? "" : ", ").append(clean_text(started.agents(index).name(), 127));
  }
  return listed <= kListedMax ? text : text + ", ...";
}

Status ReturningJobs::add(uint64_t agent, const AgentInfo& info, const v1::RunningJob& part,
                          Nanos deadline) {
  const auto known = jobs_.find(part.job_id());
  if (!part.has_started() && (known == jobs_.end() || !known->second.has(agent))) return {};
  if (part.has_started()) {
    static const ReturningJob kNone;
    GRADBUS_RETURN_IF_ERROR(
        check_first_part(known == jobs_.end() ? kNone : known->second, info, part));
    if (known == jobs_.end() && jobs_.size() >= kReturningJobsMax)
      return short_error("A304", "too many running jobs were announced at once");
  }
  ReturningJob& job = jobs_[part.job_id()];
  if (job.deadline == 0) job.deadline = deadline;
  if (part.has_started()) take_start(job, part);
  const Status taken = take_part(job, agent, info, part);
  if (!taken.ok() && job.problem.ok()) job.problem = taken;
  return {};
}

bool ReturningJobs::has_name(const std::string& name) const {
  return std::ranges::any_of(jobs_, [&](const auto& entry) { return entry.second.name() == name; });
}

ReturningJob* ReturningJobs::find(const std::string& name) {
  const auto at =
      std::ranges::find_if(jobs_, [&](const auto& entry) { return entry.second.name() == name; });
  return at == jobs_.end() ? nullptr : &at->second;
}

bool ReturningJobs::keep(uint64_t agent, const v1::AgentMessage& message) {
  using Message = v1::AgentMessage;
  const auto at = jobs_.find(job_of(message));
  if (at == jobs_.end()) return false;
  ReturningJob& job = at->second;
  const Message::MessageCase kind = message.message_case();
  const bool repeated = kind == Message::kRankBlocked || kind == Message::kProgressReport;
  if (repeated || !job.has(agent)) return true;
  if (job.kept.size() < kReturnMessagesMax) {
    job.kept.push_back({agent, message});
  } else if (job.problem.ok()) {
    job.problem = lost(job.name(), "its ranks sent more than can be kept before all nodes came");
  }
  return true;
}

void ReturningJobs::lose(uint64_t agent, const std::string& why) {
  for (auto& [id, job] : jobs_) {
    if (!job.has(agent)) continue;
    std::erase_if(job.shards, [agent](const auto& node) { return node.second.agent == agent; });
    if (job.has(agent) && job.problem.ok())
      job.problem = short_error("P104", "job " + in_quotes(job.name()) + ": lost agent " + why);
  }
}

std::vector<ReturningJob> ReturningJobs::take(Nanos now) {
  std::vector<ReturningJob> taken;
  for (auto entry = jobs_.begin(); entry != jobs_.end();) {
    const auto current = entry++;
    ReturningJob& job = current->second;
    if (job.problem.ok() && !job.whole() && now < job.deadline) continue;
    if (job.problem.ok() && !job.has_all_agents())
      job.problem = lost(job.name(), "after the restart of the coordinator " + job.missing() +
                                         " did not announce it in time");
    taken.push_back(std::move(job));
    jobs_.erase(current);
  }
  return taken;
}

Status ReturningJobs::lost_before(uint64_t job) const {
  const auto at = std::ranges::find(lost_, job, &std::pair<uint64_t, Status>::first);
  return at == lost_.end() ? Status() : at->second;
}

void ReturningJobs::remember_lost(uint64_t job, const Status& why) {
  if (lost_.size() == kLostReturnsMax) lost_.pop_front();
  lost_.emplace_back(job, why);
}

uint64_t job_of(const v1::AgentMessage& message) {
  using Message = v1::AgentMessage;
  switch (message.message_case()) {
    case Message::kRegisterTensors: return message.register_tensors().job_id();
    case Message::kUnregisterTensors: return message.unregister_tensors().job_id();
    case Message::kRankBlocked: return message.rank_blocked().job_id();
    case Message::kRankLeft: return message.rank_left().job_id();
    case Message::kProgressReport: return message.progress_report().job_id();
    case Message::kJobFailure: return message.job_failure().job_id();
    case Message::kNcclReport: return message.nccl_report().job_id();
    default: return 0;
  }
}

}  // namespace gradbus
