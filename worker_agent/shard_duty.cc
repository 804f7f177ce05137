#include "worker_agent/shard_duty.h"

#include <algorithm>

#include "client_lib/shm/half_averages.h"
#include "common/crc32c.h"
#include "common/errors.h"
#include "common/exchange_mode.h"
#include "common/log.h"
#include "proto/control.h"
#include "proto/placement.h"
#include "worker_agent/node_job.h"

namespace gradbus {
namespace {

// The plan without `shard`.
Result<ShardPlan> plan_of(const v1::JobStarted& started, const std::vector<ShardRing>& rings,
                          const v1::ReadyTensor& ready) {
  const TensorSpec spec = spec_from(ready.spec());
  const auto world = static_cast<uint32_t>(started.members_size());
  const std::string who = "the coordinator's plan for tensor \"" + ready.name() + "\"";
  if (const Status bad = check_spec(spec, world); !bad.ok())
    return error("D602", who + " is not valid: " + bad.message());
  if (ready.chunk_elements() == 0 ||
      ready.chunk_elements() > kFramePayloadBytesMax / dtype_bytes(spec.dtype))
    return error("D602",
                 who + " has chunks of " + std::to_string(ready.chunk_elements()) + " elements");
  ShardPlan plan;
  plan.collective.algorithm = Algorithm::kShards;
  plan.collective.dtype = spec.dtype;
  plan.collective.op = spec.op;
  plan.collective.count = spec.count;
  plan.collective.chunk_elements = ready.chunk_elements();
  plan.collective.agents = static_cast<uint32_t>(started.agents_size());
  if (ready.placement() >= rings.size() || ready.moved_from().placement() >= rings.size())
    return error("D602", who + " has placement " + std::to_string(ready.placement()) + " of " +
                             std::to_string(rings.size()));
  const ShardRing& ring = rings[ready.placement()];
  plan.collective.shards = ring.shards;
  plan.collective.pattern = ring.pattern;
  plan.collective.members = ring.members;
  plan.collective.tensor = ready.id();
  plan.name = spec.name;
  plan.last = reduction_after_nodes(spec, world);
  plan.mode = parse_mode(spec.mode).take();
  plan.collective.one_shard = plan.mode.keeps_tensors_whole();
  const uint32_t replicas = plan.mode.settled_replicas(plan.collective.shards);
  if (replicas > plan.collective.shards)
    return error("D602", who + " has mode \"" + spec.mode + "\" with " +
                             std::to_string(plan.collective.shards) + " shards");
  if (ready.has_moved_from()) {
    const v1::MovedFrom& from = ready.moved_from();
    const ShardRing& before = rings[from.placement()];
    if (from.chunk_elements() == 0 || from.id() >= ready.id())
      return error("D602", who + " replaces a tensor that does not match it");
    const bool whole = plan.collective.one_shard;
    plan.moved =
        MovedPlan{from.id(),      whole ? plan.cut().chunk_elements : from.chunk_elements(),
                  before.shards,  plan.mode.settled_replicas(before.shards),
                  before.pattern, before.members,
                  whole};
    plan.mode.restore = false;  // restored state moves
  }
  plan.ranks.resize(plan.collective.agents);
  for (const v1::JobMember& member : started.members()) ++plan.ranks.at(member.agent_index());
  Result<CompressionPlan> compression = compression_from(ready, plan.ranks.size());
  if (!compression.ok()) return compression.status();
  plan.compression = compression.take();
  if (plan.collective.one_shard && !plan.compression.spec.none())
    return error("D602",
                 who + " compresses a tensor, which mode \"" + spec.mode + "\" does not support");
  plan.tensor_seed = tensor_seed(started.job_id(), ready.id());
  return plan;
}

// Identifies a start of a job in snapshots, or its continuation on other shards: their files do not
// fit together. The link key itself stays among daemons.
uint64_t run_of(const v1::JobStarted& started, uint32_t placement) {
  const uint64_t key = started.link_key() + placement;
  return started.job_id() << 32 | crc32c(std::as_bytes(std::span(&key, 1)));
}

// The index of this shard among those; `shards` when it is none of them.
uint32_t place_of(uint32_t shard, const ShardRing& ring) {
  if (ring.members == nullptr) return std::min(shard, ring.shards);
  return static_cast<uint32_t>(std::ranges::find(*ring.members, shard) - ring.members->begin());
}

}  // namespace

void ShardDuty::begin(const v1::JobStarted& started, uint64_t agent_id, uint64_t incarnation) {
  const auto mine = [&](const v1::JobAgent& shard) { return shard.agent_id() == agent_id; };
  const auto at = std::ranges::find_if(started.shards(), mine);
  if (at == started.shards().end()) return;
  const auto shard = static_cast<uint32_t>(at - started.shards().begin());
  Duty duty{started, shard, incarnation, run_of(started, 0), std::make_shared<JobTraffic>()};
  Result<PlacementPattern> pattern = pattern_from(started);
  if (!pattern.ok()) return spdlog::error("{}", pattern.status().message());
  duty.started_shards = static_cast<uint32_t>(started.shards_size());
  duty.rings = {{duty.started_shards, pattern.take(), nullptr}};
  StartShardJob start{started.job_id(),
                      started.job(),
                      started.epoch(),
                      started.link_key(),
                      shard,
                      static_cast<uint32_t>(started.agents_size()),
                      {},
                      duty.traffic,
                      keeper_,
                      duty.run,
                      static_cast<uint32_t>(started.shards_size())};
  for (const v1::JobAgent& agent : started.agents()) start.addresses.push_back(agent.address());
  for (const v1::JobAgent& other : started.shards()) start.addresses.push_back(other.address());
  engine_.post(std::move(start));
  spdlog::info("job \"{}\" started: shard {} of {}, for {} agents", started.job(), shard,
               started.shards_size(), started.agents_size());
  jobs_.insert_or_assign(started.job_id(), std::move(duty));
}

Status ShardDuty::place(const v1::TensorsReady& ready) {
  const auto at = jobs_.find(ready.job_id());
  if (at == jobs_.end()) return {};
  // An answer to one rank is about a tensor that all ranks already have.
  if (ready.ranks_size() > 0) return {};
  for (const v1::ReadyTensor& tensor : ready.tensors()) {
    at->second.tensor_last = std::max(at->second.tensor_last, tensor.id());
    if (!is_on_shards(tensor.spec().mode())) continue;
    GRADBUS_RETURN_IF_ERROR(place_one(at->second, tensor));
    at->second.tensors[tensor.id()] = tensor;
  }
  return {};
}

// Places this shard's part, then its copy of another shard's part.
Status ShardDuty::place_one(Duty& duty, const v1::ReadyTensor& ready) {
  Result<ShardPlan> made = plan_of(duty.started, duty.rings, ready);
  if (!made.ok()) return made.status();
  ShardPlan plan = made.take();
  const ShardRing& ring = duty.rings[ready.placement()];
  plan.shard = place_of(duty.shard, ring);
  if (plan.shard == ring.shards) return {};
  plan.mode.replicas = plan.mode.settled_replicas(ring.shards);
  const bool copies = plan.mode.replicas > 1;
  if (!copies) tell_single_copy(duty, plan);
  AddShardTensor command{duty.started.job_id(), plan};
  command.placement = ready.placement();
  command.run = run_of(duty.started, ready.placement());
  command.begins_move = plan.moved && !copies;
  GRADBUS_RETURN_IF_ERROR(add(duty, command));
  if (!copies) return {};
  command.plan.shard = backed_up_by(plan.shard, ring.shards);
  command.copy = true;
  command.begins_move = plan.moved.has_value();
  return add(duty, command);
}

void ShardDuty::retire(const v1::TensorsRetired& retired) {
  const auto at = jobs_.find(retired.job_id());
  if (at == jobs_.end()) return;
  for (const uint32_t tensor : retired.tensors()) {
    at->second.tensors.erase(tensor);
    engine_.post(RemoveTensor{retired.job_id(), tensor, nullptr});
  }
}

std::vector<v1::AgentMessage> ShardDuty::announce(uint64_t incarnation) {
  std::vector<v1::AgentMessage> parts;
  for (auto& [id, duty] : jobs_) {
    if (duty.incarnation == incarnation) continue;
    duty.incarnation = incarnation;
    const auto begin = [&, job = id, shard = duty.shard]() -> v1::RunningJob& {
      v1::RunningJob& part = *parts.emplace_back().mutable_running_job();
      part.set_job_id(job);
      part.set_shard(true);
      part.set_index(shard);
      return part;
    };
    v1::RunningJob* part = &begin();
    *part->mutable_started() = duty.started;
    part->set_tensor_last(duty.tensor_last);
    if (duty.shards_changed) *part->mutable_shards_changed() = *duty.shards_changed;
    for (const auto& [tensor, ready] : duty.tensors) {
      if (part->has_started() || part->tensors_size() == kTensorsPerRunningJobMax) part = &begin();
      *part->add_tensors()->mutable_ready() = ready;
    }
    part->set_last(true);
  }
  return parts;
}

Status ShardDuty::change(const v1::ShardsChanged& changed) {
  const auto at = jobs_.find(changed.job_id());
  if (at == jobs_.end()) return {};
  Duty& duty = at->second;
  Result<std::vector<ShardRing>> rings = rings_from(changed);
  if (!rings.ok()) return rings.status();
  duty.rings = rings.take();
  duty.shards_changed = changed;
  engine_.post(new_shards(changed, static_cast<int>(duty.started_shards)));
  duty.started_shards = std::max(duty.started_shards, static_cast<uint32_t>(changed.shards_size()));
  return {};
}

Status ShardDuty::add(const Duty& duty, AddShardTensor command) {
  if (!command.plan.mode.restore) {
    engine_.post(std::move(command));
    return {};
  }
  if (keeper_ == nullptr)
    return error("F111", "shard " + std::to_string(duty.shard) + " of job \"" + duty.started.job() +
                             "\" was started without --snapshots");
  const ShardPlan plan = command.plan;
  std::vector<uint64_t> runs;
  for (uint32_t placement = 0; placement < duty.rings.size(); ++placement)
    runs.push_back(run_of(duty.started, placement));
  keeper_->restore(duty.started.job(), std::move(runs), plan,
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
void ShardDuty::tell_single_copy(Duty& duty, const ShardPlan& plan) {
  if (!plan.mode.holds_parameters() || duty.told_single_copy) return;
  duty.told_single_copy = true;
  spdlog::warn(
      "job \"{}\": tensor \"{}\" has no second copy (mode {}, {} shards): if this shard dies the "
      "job "
      "ends, and what it holds since its last snapshot is lost{}",
      duty.started.job(), plan.name, plan.mode.canonical, plan.collective.shards,
      plan.collective.shards > 1 ? "; replicas=2 keeps one on the next shard"
                                 : "; with a second shard there would be one");
}

void ShardDuty::end(uint64_t job) {
  if (jobs_.erase(job) > 0) engine_.post(EndJob{job});
}

void ShardDuty::end_all() {
  for (const auto& [id, duty] : jobs_) engine_.post(EndJob{id});
  jobs_.clear();
}

void ShardDuty::report_counters(uint64_t incarnation, v1::Heartbeat& heartbeat) const {
  for (const auto& [id, duty] : jobs_) {
    if (duty.incarnation != incarnation) continue;
    v1::JobCounters& counters = *heartbeat.add_jobs();
    counters.set_job_id(id);
    counters.set_sent_bytes(duty.traffic->sent_bytes.load(std::memory_order_relaxed));
    counters.set_received_bytes(duty.traffic->received_bytes.load(std::memory_order_relaxed));
  }
}

}  // namespace gradbus
