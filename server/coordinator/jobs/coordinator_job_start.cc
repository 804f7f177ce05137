// A job's beginning: ranks join one by one; when all are there, every agent gets the same
// membership.
#include <algorithm>
#include <set>

#include "common/units.h"
#include "proto/control.h"
#include "proto/numbers.h"
#include "server/coordinator/jobs/coordinator_job.h"

namespace gradbus {
namespace {

// Names that every agent offers an address for.
std::set<std::string> common_transports(const std::map<uint64_t, AgentInfo>& agents) {
  std::set<std::string> common;
  for (const auto& [name, address] : agents.begin()->second.addresses) common.insert(name);
  for (const auto& [agent, info] : agents) {
    std::erase_if(
        common, [&info = info](const std::string& name) { return !info.addresses.contains(name); });
  }
  return common;
}

std::string offers(const AgentInfo& info) {
  std::string text = clean_text(info.name, 127) + " has ";
  if (info.addresses.empty()) return text + "none";
  bool first = true;
  for (const auto& [name, address] : info.addresses) {
    text.append(first ? "" : ", ").append(clean_text(name));
    first = false;
  }
  return text;
}

}  // namespace

CoordinatorJob::CoordinatorJob(Identity identity, uint32_t world_size,
                               const CoordinatorOptions& options, Nanos now, Outbox* outbox)
    : identity_(std::move(identity)),
      options_(options),
      outbox_(outbox),
      created_at_(now),
      membership_(world_size),
      registrations_(world_size, options.plan),
      stalls_(&membership_, &registrations_, options.deadlock),
      late_rule_(options.late),
      loss_rule_(options.loss) {}

void refuse_join(Outbox& outbox, uint64_t agent, const std::string& job, uint32_t rank,
                 uint64_t join, const Status& status) {
  v1::CoordinatorMessage message;
  auto* refused = message.mutable_join_refused();
  refused->set_job(job);
  refused->set_rank(rank);
  refused->set_join(join);
  *refused->mutable_error() = to_proto(status);
  outbox.send(agent, std::move(message));
}

Status CoordinatorJob::check_owner(const User& caller, const std::string& wish) const {
  if (caller.uid == identity_.owner.uid) return {};
  return short_error("J408", title() + " belongs to " + user_text(identity_.owner) + "; refused " +
                                 user_text(caller) + ", " + wish);
}

Status CoordinatorJob::may_join(uint64_t agent, const AgentInfo& info,
                                const v1::JoinJob& message) const {
  const uint32_t rank = message.rank();
  GRADBUS_RETURN_IF_ERROR(check_owner({message.uid(), message.user()},
                                      "who wants to join as rank " + std::to_string(rank) + " on " +
                                          info.name + " (pid " + std::to_string(message.pid()) +
                                          ")"));
  if (message.world_size() != membership_.world_size()) {
    return short_error("J403", title() + " has world size " +
                                   std::to_string(membership_.world_size()) + ", but rank " +
                                   std::to_string(rank) + " (" + info.name + ", pid " +
                                   std::to_string(message.pid()) + ") says " +
                                   std::to_string(message.world_size()));
  }
  if (membership_.find(rank) != nullptr) {
    const bool left = !membership_.owns(membership_.find(rank)->agent, rank);
    return short_error("J402", title() + " already has " + membership_.describe_rank(rank) +
                                   (left ? ", which has left; the job goes on" : "") +
                                   "; refused pid " + std::to_string(message.pid()) + " on " +
                                   info.name);
  }
  if (membership_.added_through(agent) >= kLocalRanksMax) {
    return short_error("A304", info.name + " already has " + std::to_string(kLocalRanksMax) +
                                   " ranks of " + title());
  }
  return Status();
}

void CoordinatorJob::join(uint64_t agent, const AgentInfo& info, const v1::JoinJob& message,
                          const AgentInfos& shards, Nanos now) {
  if (Status no = may_join(agent, info, message); !no.ok()) {
    return refuse_join(*outbox_, agent, identity_.name, message.rank(), message.join(), no);
  }
  membership_.add(message.rank(), agent, info, message.pid());
  membership_.find(message.rank())->join = message.join();
  start_timeout_ms_ = std::max(start_timeout_ms_, start_timeout_ms(message.start_timeout_ms()));
  if (membership_.complete()) start(shards, now);
}

void CoordinatorJob::start(const AgentInfos& shards, Nanos now) {
  Result<std::string> transport = choose_transport();
  if (!transport.ok()) return fail(transport.status(), now);
  transport_ = transport.take();
  for (const auto& [id, info] : shards)
    if (info.addresses.contains(transport_)) shards_.add(id, info);
  registrations_.set_agents(static_cast<uint32_t>(membership_.agents().size()));
  nccl_.set_agents(membership_.agents().size());
  ShardMap shard_map{
      place_shards(membership_.agents(), shards_.living(), transport_, options_.equal_shards), {}};
  for (const auto& [id, info] : shards_) {
    shard_map.members.push_back(static_cast<uint32_t>(shard_map.members.size()));
    shards_told_.insert(id);
  }
  shard_maps_ = {shard_map};
  const auto shard_count = static_cast<uint32_t>(shards_.size());
  const auto period = static_cast<uint32_t>(shard_map.of.pattern.size());
  registrations_.set_shards(shard_count, period == 0 ? shard_count : period);
  state_ = State::kRunning;
  v1::CoordinatorMessage message;
  *message.mutable_job_started() = started_message();
  outbox_->send_all(membership_.agents(), message);
  message.mutable_job_started()->clear_secret();  // shards have no ranks
  if (!shards_.empty()) outbox_->send_all(shards_, message);
  const std::string where = counted(membership_.world_size(), "rank") + " on " +
                            counted(membership_.agents().size(), "agent") +
                            (shards_.empty() ? "" : ", " + counted(shards_.size(), "shard"));
  outbox_->note(title() + " started: " + where);
  tell_event(EventKind::kJobStarted, where + ", of " + user_text(identity_.owner), now);
  if (!shards_.empty()) outbox_->note(title() + ": " + shard_map.of.why);
}

// tcp, which every agent of today has; else the first by name. One agent alone needs none.
Result<std::string> CoordinatorJob::choose_transport() const {
  const std::set<std::string> common = common_transports(membership_.agents());
  if (common.contains("tcp")) return std::string("tcp");
  if (!common.empty()) return *common.begin();
  if (membership_.agents().size() == 1) return std::string();
  std::string text;
  size_t listed = 0;
  for (const auto& [agent, info] : membership_.agents()) {
    if (listed++ < kListedMax) text.append(listed == 1 ? "" : "; ").append(offers(info));
  }
  return short_error("D605", title() + ": " + text);
}

// Agents are numbered by their lowest rank, local ranks by rank.
v1::JobStarted CoordinatorJob::started_message() const {
  v1::JobStarted started;
  started.set_job(identity_.name);
  started.set_job_id(identity_.id);
  started.set_epoch(1);
  started.set_link_key(identity_.link_key);
  started.set_transport(transport_);
  started.set_secret(identity_.secret);
  started.set_uid(identity_.owner.uid);
  started.set_user(identity_.owner.name);
  struct Place {
    uint32_t index = 0;
    uint32_t ranks = 0;
  };
  std::map<uint64_t, Place> places;
  for (const auto& [rank, record] : membership_.ranks()) {
    const auto [at, added] = places.try_emplace(record.agent);
    if (added) {
      at->second.index = static_cast<uint32_t>(started.agents_size());
      const AgentInfo& info = membership_.agents().at(record.agent);
      auto* agent = started.add_agents();
      agent->set_agent_id(record.agent);
      agent->set_name(info.name);
      if (!transport_.empty()) agent->set_address(info.addresses.at(transport_));
    }
    auto* member = started.add_members();
    member->set_rank(rank);
    member->set_agent_index(at->second.index);
    member->set_local_rank(at->second.ranks++);
    member->set_join(record.join);
  }
  for (const auto& [id, info] : shards_) {
    auto* shard = started.add_shards();
    shard->set_agent_id(id);
    shard->set_name(info.name);
    shard->set_address(info.addresses.at(transport_));
  }
  const std::vector<uint32_t>& pattern = shard_maps_.front().of.pattern;
  started.mutable_placement()->Add(pattern.begin(), pattern.end());
  return started;
}

void CoordinatorJob::check_start_timeout(Nanos now) {
  const Nanos limit = static_cast<Nanos>(start_timeout_ms_) * kMillisecond;
  if (state_ != State::kJoining || now - created_at_ < limit) return;
  fail(short_error("J404", std::to_string(membership_.ranks().size()) + " of " +
                               std::to_string(membership_.world_size()) + " ranks joined " +
                               title() + " within " + seconds_text(limit) +
                               "; missing: " + rank_list(membership_.absent())),
       now);
}

}  // namespace gradbus
