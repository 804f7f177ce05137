#include "server/parameter_server/ps_control_jobs.h"

#include <algorithm>

#include "common/crc32c.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/units.h"
#include "proto/control.h"
#include "proto/placement.h"
#include "shared_memory/half_averages.h"

namespace gradbus {
namespace {

// The placement of the replaced tensor.
ReshardingPlan resharding_from(const TensorPlan& tensor, const MovedFrom& from,
                               const ShardSet& before) {
  const bool whole = tensor.mode.keeps_tensors_whole();
  return {from.id,        whole ? std::max<uint64_t>(tensor.spec.count, 1) : from.chunk_elements,
          before.shards,  tensor.mode.settled_replicas(before.shards),
          before.pattern, before.members,
          whole};
}

// The plan without `shard`. `tensor` has a PsPlan.
ShardPlan plan_of(const v1::JobStarted& started, const std::vector<ShardSet>& shard_sets,
                  const TensorPlan& tensor) {
  const PsPlan& ps = *tensor.ps();
  ShardPlan plan;
  plan.job = started.job();
  plan.collective.algorithm = Algorithm::kShards;
  plan.collective.dtype = tensor.spec.dtype;
  plan.collective.op = tensor.spec.op;
  plan.collective.count = tensor.spec.count;
  plan.collective.chunk_elements = tensor.chunk_elements;
  plan.collective.agents = static_cast<uint32_t>(started.agents_size());
  plan.collective.shards = ps.shards.shards;
  plan.collective.pattern = ps.shards.pattern;
  plan.collective.members = ps.shards.members;
  plan.collective.tensor = tensor.id;
  plan.collective.one_shard = tensor.mode.keeps_tensors_whole();
  plan.name = tensor.spec.name;
  plan.last = reduction_after_nodes(tensor.spec, static_cast<uint32_t>(started.members_size()));
  plan.mode = tensor.mode;
  plan.mode.replicas = ps.replicas;
  plan.compression = ps.compression;
  plan.tensor_seed = tensor_seed(started.job_id(), tensor.id);
  plan.ranks.resize(plan.collective.agents);
  for (const v1::JobMember& member : started.members()) ++plan.ranks.at(member.agent_index());
  if (ps.moved_from) {
    plan.moved = resharding_from(tensor, *ps.moved_from, shard_sets[ps.moved_from->placement]);
    plan.mode.restore = false;  // restored state moves
  }
  return plan;
}

// Identifies a start of a job in snapshots, or its continuation on other shards: their files do not
// fit together. The link key itself stays among daemons.
uint64_t run_of(const v1::JobStarted& started, uint32_t placement) {
  const uint64_t key = started.link_key() + placement;
  return started.job_id() << 32 | crc32c(std::as_bytes(std::span(&key, 1)));
}

// The index of this shard among those; `shards` when it is none of them.
uint32_t place_of(uint32_t shard, const ShardSet& shard_set) {
  if (shard_set.members == nullptr) return std::min(shard, shard_set.shards);
  return static_cast<uint32_t>(std::ranges::find(*shard_set.members, shard) -
                               shard_set.members->begin());
}

}  // namespace

void PsControlJobs::begin(const v1::JobStarted& started, uint64_t agent_id, uint64_t incarnation) {
  const auto mine = [&](const v1::JobAgent& shard) { return shard.agent_id() == agent_id; };
  const auto at = std::ranges::find_if(started.shards(), mine);
  if (at == started.shards().end()) return;
  const auto shard = static_cast<uint32_t>(at - started.shards().begin());
  PsControlJob ps_job{started, shard, incarnation, run_of(started, 0),
                      std::make_shared<JobTraffic>()};
  Result<PlacementPattern> pattern = pattern_from(started);
  if (!pattern.ok()) {
    return spdlog::error("job \"{}\": {}", started.job(), pattern.status().message());
  }
  ps_job.started_shards = static_cast<uint32_t>(started.shards_size());
  ps_job.shard_sets = {{ps_job.started_shards, pattern.take(), nullptr}};
  StartShardJob start{started.job_id(),
                      started.job(),
                      started.epoch(),
                      started.link_key(),
                      shard,
                      static_cast<uint32_t>(started.agents_size()),
                      {},
                      ps_job.traffic,
                      keeper_,
                      ps_job.run,
                      static_cast<uint32_t>(started.shards_size())};
  for (const v1::JobAgent& agent : started.agents()) start.addresses.push_back(agent.address());
  for (const v1::JobAgent& other : started.shards()) start.addresses.push_back(other.address());
  engine_.post(std::move(start));
  spdlog::info("job \"{}\" started: shard {} of {}, for {}", started.job(), shard,
               started.shards_size(), counted(started.agents_size(), "agent"));
  jobs_.insert_or_assign(started.job_id(), std::move(ps_job));
}

Status PsControlJobs::place(const v1::TensorsReady& ready) {
  const auto at = jobs_.find(ready.job_id());
  if (at == jobs_.end()) return {};
  // An answer to one rank is about a tensor that all ranks already have.
  if (ready.ranks_size() > 0) return {};
  for (const v1::ReadyTensor& tensor : ready.tensors()) {
    at->second.tensor_last = std::max(at->second.tensor_last, tensor.id());
    if (!is_on_shards(tensor.spec().mode())) continue;
    const v1::JobStarted& started = at->second.started;
    const Result<TensorPlan> plan = tensor_plan_from(
        tensor, {static_cast<uint32_t>(started.agents_size()),
                 static_cast<uint32_t>(started.members_size()), at->second.shard_sets});
    if (!plan.ok()) return plan.status();
    GRADBUS_RETURN_IF_ERROR(place_one(at->second, plan.value()));
    at->second.tensors[tensor.id()] = tensor;
  }
  return {};
}

// Places this shard's part, then its copy of another shard's part.
Status PsControlJobs::place_one(PsControlJob& ps_job, const TensorPlan& tensor) {
  ShardPlan plan = plan_of(ps_job.started, ps_job.shard_sets, tensor);
  const ShardSet& shard_set = tensor.ps()->shards;
  plan.shard = place_of(ps_job.shard, shard_set);
  if (plan.shard == shard_set.shards) return {};
  const bool copies = plan.mode.replicas > 1;
  if (!copies) tell_single_copy(ps_job, plan);
  AddShardTensor command{ps_job.started.job_id(), plan};
  command.placement = tensor.ps()->placement;
  command.run = run_of(ps_job.started, command.placement);
  command.begins_move = plan.moved && !copies;
  GRADBUS_RETURN_IF_ERROR(add(ps_job, command));
  if (!copies) return {};
  command.plan.shard = backed_up_by(plan.shard, shard_set.shards);
  command.copy = true;
  command.begins_move = plan.moved.has_value();
  return add(ps_job, command);
}

void PsControlJobs::retire(const v1::TensorsRetired& retired) {
  const auto at = jobs_.find(retired.job_id());
  if (at == jobs_.end()) return;
  for (const uint32_t tensor : retired.tensors()) {
    at->second.tensors.erase(tensor);
    engine_.post(RemoveTensor{retired.job_id(), tensor, nullptr});
  }
}

std::vector<v1::AgentMessage> PsControlJobs::announce(uint64_t incarnation) {
  std::vector<v1::AgentMessage> parts;
  for (auto& [id, ps_job] : jobs_) {
    if (ps_job.incarnation == incarnation) continue;
    ps_job.incarnation = incarnation;
    const auto begin = [&, job = id, shard = ps_job.shard]() -> v1::RunningJob& {
      v1::RunningJob& part = *parts.emplace_back().mutable_running_job();
      part.set_job_id(job);
      part.set_shard(true);
      part.set_index(shard);
      return part;
    };
    v1::RunningJob* part = &begin();
    *part->mutable_started() = ps_job.started;
    part->set_tensor_last(ps_job.tensor_last);
    if (ps_job.shards_changed) *part->mutable_shards_changed() = *ps_job.shards_changed;
    for (const auto& [tensor, ready] : ps_job.tensors) {
      if (part->has_started() || part->tensors_size() == kTensorsPerRunningJobMax) part = &begin();
      *part->add_tensors()->mutable_ready() = ready;
    }
    part->set_last(true);
  }
  return parts;
}

Status PsControlJobs::change(const v1::ShardsChanged& changed) {
  const auto at = jobs_.find(changed.job_id());
  if (at == jobs_.end()) return {};
  PsControlJob& ps_job = at->second;
  Result<std::vector<ShardSet>> shard_sets = shard_sets_from(changed);
  if (!shard_sets.ok()) return shard_sets.status();
  ps_job.shard_sets = shard_sets.take();
  ps_job.shards_changed = changed;
  engine_.post(new_shards(changed, static_cast<int>(ps_job.started_shards)));
  ps_job.started_shards =
      std::max(ps_job.started_shards, static_cast<uint32_t>(changed.shards_size()));
  return {};
}

Status PsControlJobs::add(const PsControlJob& ps_job, AddShardTensor command) {
  if (!command.plan.mode.restore) {
    engine_.post(std::move(command));
    return {};
  }
  if (keeper_ == nullptr)
    return error("F111", "shard " + std::to_string(ps_job.shard) + " of job \"" +
                             ps_job.started.job() + "\" was started without --snapshots");
  const ShardPlan plan = command.plan;
  std::vector<uint64_t> runs;
  for (uint32_t placement = 0; placement < ps_job.shard_sets.size(); ++placement)
    runs.push_back(run_of(ps_job.started, placement));
  keeper_->restore(ps_job.started.job(), std::move(runs), plan,
                   [&engine = engine_, command](SnapshotKeeper::Restored restored) mutable {
                     if (restored.ok()) {
                       command.restored = restored.take();
                     } else {
                       command.restore_failed = restored.status();
                     }
                     engine.post(std::move(command));
                   });
  return {};
}

// Logged once per job: which data can be lost.
void PsControlJobs::tell_single_copy(PsControlJob& ps_job, const ShardPlan& plan) {
  if (!plan.mode.holds_parameters() || ps_job.told_single_copy) return;
  ps_job.told_single_copy = true;
  spdlog::warn(
      "job \"{}\": tensor \"{}\" has no second copy (mode {}, {} shards): if this shard dies the "
      "job "
      "ends, and what it holds since its last snapshot is lost{}",
      ps_job.started.job(), plan.name, plan.mode.canonical, plan.collective.shards,
      plan.collective.shards > 1 ? "; replicas=2 keeps one on the next shard"
                                 : "; with a second shard there would be one");
}

void PsControlJobs::end(uint64_t job) {
  if (jobs_.erase(job) > 0) engine_.post(EndJob{job});
}

void PsControlJobs::end_all() {
  for (const auto& [id, ps_job] : jobs_) engine_.post(EndJob{id});
  jobs_.clear();
}

void PsControlJobs::report_counters(uint64_t incarnation, v1::Heartbeat& heartbeat) const {
  for (const auto& [id, ps_job] : jobs_) {
    if (ps_job.incarnation != incarnation) continue;
    v1::JobCounters& counters = *heartbeat.add_jobs();
    counters.set_job_id(id);
    counters.set_sent_bytes(ps_job.traffic->sent_bytes.load(std::memory_order_relaxed));
    counters.set_received_bytes(ps_job.traffic->received_bytes.load(std::memory_order_relaxed));
  }
}

}  // namespace gradbus
