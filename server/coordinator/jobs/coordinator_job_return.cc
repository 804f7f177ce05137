// A running job that its nodes have announced after a restart of the coordinator becomes this
// coordinator's job. What each node knows of the job's tensors is merged: messages of the former
// coordinator have reached some nodes and not others, and those get them again.
#include "common/errors.h"
#include "common/units.h"
#include "proto/numbers.h"
#include "server/coordinator/jobs/coordinator_job.h"
#include "server/coordinator/jobs/returning_jobs.h"

namespace gradbus {
namespace {

constexpr uint64_t kMissingShard = uint64_t{1} << 63;  // ids of shards that have not come back

struct Merged {
  v1::ReadyTensor ready;
  RankSet released;
  RankSet viewed;
  std::set<uint64_t> known_by;  // nodes
  bool retired = false;         // by all ranks: some node was told
  bool settled = false;         // by NCCL or not: some node knows which
  bool unsettled = false;
};
using MergedTensors = std::map<uint32_t, Merged>;

Status contradiction(const std::string& job, const Merged& tensor) {
  return short_error("J410", "job " + in_quotes(job) +
                                 ": after the restart of the coordinator its nodes reported "
                                 "different states of tensor " +
                                 tensor_in_quotes(tensor.ready.name()));
}

Status merge_node(const std::string& job, const ReturningNode& node, MergedTensors& merged) {
  for (const auto& [id, tensor] : node.tensors) {
    const auto [at, added] = merged.try_emplace(id);
    Merged& known = at->second;
    if (added) known.ready = tensor.ready();
    if (known.ready.SerializeAsString() != tensor.ready().SerializeAsString())
      return contradiction(job, known);
    known.known_by.insert(node.agent);
    if (!node.info.shard) (tensor.nccl_waits() ? known.unsettled : known.settled) = true;
    for (const uint32_t rank : tensor.released())
      if (node.ranks.contains(rank)) known.released.insert(rank);
    for (const uint32_t rank : tensor.viewed())
      if (node.ranks.contains(rank)) known.viewed.insert(rank);
  }
  return {};
}

}  // namespace

void CoordinatorJob::take_membership(const ReturningJob& from) {
  for (const auto& [index, node] : from.agents)
    for (const auto& [rank, running] : node.ranks)
      if (membership_.find(rank) == nullptr)
        membership_.add(rank, node.agent, node.info, running.pid());
  const auto& later = from.changed.shards();
  for (uint32_t index = 0; index < from.shard_count(); ++index) {
    const auto at = from.shards.find(index);
    const auto place = static_cast<int>(index);
    const v1::JobAgent& told = place < later.size() ? later.Get(place) : from.started.shards(place);
    AgentInfo info;
    if (at != from.shards.end() && at->second.whole) info = at->second.info;
    info.shard = true;
    info.name = told.name();
    info.lost = told.lost();
    info.addresses[transport_] = told.address();
    const bool there = at != from.shards.end() && at->second.whole;
    const uint64_t id = there ? at->second.agent : kMissingShard + index;
    shards_.add(id, info);
    shards_told_.insert(id);
  }
}

void CoordinatorJob::take_placements(const ReturningJob& from) {
  shard_maps_ = {ShardMap{}};
  ShardMap& first = shard_maps_.front();
  const auto& pattern = from.started.placement();
  first.of.pattern.assign(pattern.begin(), pattern.end());
  for (int index = 0; index < from.started.shards_size(); ++index)
    first.members.push_back(static_cast<uint32_t>(index));
  for (int number = 1; number < from.changed.placements_size(); ++number) {
    const v1::ShardSet& set = from.changed.placements(number);
    ShardMap shard_map;
    shard_map.of.pattern.assign(set.pattern().begin(), set.pattern().end());
    shard_map.members.assign(set.members().begin(), set.members().end());
    shard_maps_.push_back(std::move(shard_map));
  }
  for (ShardMap& shard_map : shard_maps_) {
    const size_t members = std::max<size_t>(shard_map.members.size(), 1);
    shard_map.of.shares.resize(shard_map.members.size(), 1.0 / static_cast<double>(members));
    shard_map.of.beside.resize(shard_map.members.size());
  }
  moves_asked_ = static_cast<uint32_t>(shard_maps_.size()) - 1;
  const ShardMap& newest = shard_maps_.back();
  const auto count = static_cast<uint32_t>(newest.members.size());
  const auto period = static_cast<uint32_t>(newest.of.pattern.size());
  registrations_.set_shards(count, period == 0 ? count : period, moves_asked_);
}

// A shard has only tensors that lie on it.
bool CoordinatorJob::concerns(const v1::ReadyTensor& ready, const ReturningNode& node,
                              uint32_t index) const {
  if (!node.info.shard) return true;
  return is_on_shards(ready.spec().mode()) && ready.placement() < shard_maps_.size() &&
         place_of(index, shard_maps_[ready.placement()].members) >= 0;
}

// What some nodes have missed, and how each rank stands to each tensor. A node hears of tensors in
// the order of their ids. So one that it does not know any more, below the last that it was told
// of, has been retired there.
Status CoordinatorJob::take_tensors(const ReturningJob& from) {
  MergedTensors merged;
  uint32_t last = 0;
  for (const auto* nodes : {&from.agents, &from.shards})
    for (const auto& [index, node] : *nodes) {
      GRADBUS_RETURN_IF_ERROR(merge_node(from.name(), node, merged));
      last = std::max(last, node.tensor_last);
    }
  for (const auto* nodes : {&from.agents, &from.shards})
    for (const auto& [index, node] : *nodes)
      for (auto& [id, tensor] : merged)
        if (id <= node.tensor_last && !tensor.known_by.contains(node.agent) &&
            concerns(tensor.ready, node, index))
          tensor.retired = true;
  std::vector<LiveTensors::Tensor> retired;
  for (const auto& [id, tensor] : merged) {
    if (tensor.retired) {
      for (const uint64_t node : tensor.known_by) tell_retired_again(node, id);
      continue;
    }
    if (tensor.settled && tensor.unsettled) return contradiction(from.name(), tensor);
    if (tensor.ready.placement() >= shard_maps_.size()) return contradiction(from.name(), tensor);
    const auto shards = static_cast<uint32_t>(shard_maps_[tensor.ready.placement()].members.size());
    GRADBUS_RETURN_IF_ERROR(registrations_.take_back(tensor.ready, shards));
    tell_missed(from, tensor.ready, tensor.known_by, tensor.unsettled);
    for (const uint32_t rank : tensor.viewed) registrations_.release_but_views(rank, id);
    for (const uint32_t rank : tensor.released) registrations_.release(rank, id, retired);
  }
  registrations_.use_ids_above(last);
  for (const auto& [index, node] : from.agents)
    for (const auto& [rank, running] : node.ranks)
      if (running.left()) registrations_.leave(rank, retired);
  tell_retired(retired);
  return {};
}

void CoordinatorJob::tell_retired_again(uint64_t node, uint32_t tensor) {
  v1::CoordinatorMessage message;
  message.mutable_tensors_retired()->set_job_id(identity_.id);
  message.mutable_tensors_retired()->add_tensors(tensor);
  outbox_->send(node, std::move(message));
}

// Whether it goes by NCCL nobody knows any more, where nobody was told: it does not.
void CoordinatorJob::tell_missed(const ReturningJob& from, const v1::ReadyTensor& ready,
                                 const std::set<uint64_t>& known_by, bool unsettled) {
  v1::CoordinatorMessage message;
  message.mutable_tensors_ready()->set_job_id(identity_.id);
  *message.mutable_tensors_ready()->add_tensors() = ready;
  v1::CoordinatorMessage settled;
  settled.mutable_nccl_settled()->set_job_id(identity_.id);
  settled.mutable_nccl_settled()->add_tensors(ready.id());
  *settled.mutable_nccl_settled()->mutable_error() = to_proto(
      short_error("D628", title() + ": the coordinator was restarted before the nodes agreed"));
  for (const auto* nodes : {&from.agents, &from.shards})
    for (const auto& [index, node] : *nodes) {
      if (concerns(ready, node, index) && !known_by.contains(node.agent))
        outbox_->send(node.agent, message);
      if (!node.info.shard && unsettled) outbox_->send(node.agent, settled);
    }
}

void CoordinatorJob::take_back(const ReturningJob& from, Nanos now) {
  transport_ = from.started.transport();
  state_ = State::kRunning;
  take_membership(from);
  take_placements(from);
  registrations_.set_agents(static_cast<uint32_t>(membership_.agents().size()));
  registrations_.no_nccl();
  nccl_.set_agents(membership_.agents().size());
  if (!membership_.complete())
    return fail(
        short_error("J410", title() + ": after the restart of the coordinator its nodes did "
                                      "not announce all of its ranks"),
        now);
  if (from.changed.shards_size() > 0) tell_everyone(shards_changed());
  if (Status merged = take_tensors(from); !merged.ok()) return fail(std::move(merged), now);
  for (const auto& [index, node] : from.agents)
    for (const auto& [rank, running] : node.ranks) {
      RankRecord& record = *membership_.find(rank);
      if (running.left()) record.state = RankRecord::State::kLeft;
      if (running.left()) record.left_at = now;
    }
  outbox_->note(title() +
                " goes on under this coordinator: " + counted(membership_.world_size(), "rank") +
                " on " + counted(membership_.agents().size(), "agent") + ", " +
                counted(registrations_.ready_count(), "tensor"));
  tell_event(EventKind::kJobStarted, "goes on under this coordinator", now);
  for (uint32_t index = 0; index < shards_.size() && live(); ++index)
    if (!shards_.at(index).lost && (shards_told_.contains(kMissingShard + index)))
      agent_lost(kMissingShard + index,
                 shards_.at(index).name + " has not come back since the coordinator was restarted",
                 now);
  if (live() && membership_.joined().empty()) {
    v1::CoordinatorMessage ended;
    ended.mutable_job_ended()->set_job_id(identity_.id);
    tell_everyone(ended);
    end(State::kDone, now);
  }
}

}  // namespace gradbus
