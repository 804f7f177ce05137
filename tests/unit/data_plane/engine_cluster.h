// Engines of several nodes in one thread, on the loopback transport. Clients consist of rings and
// local reductions only. The cluster replaces the conductors and the training processes.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data_plane/engine.h"
#include "proto/placement.h"
#include "server/parameter_server/ps_data_job.h"
#include "server/parameter_server/snapshot_keeper.h"
#include "shared_memory/half_averages.h"
#include "tests/unit/data_plane/manual_clock.h"
#include "transport/registry.h"
#include "worker_agent/data/worker_data_job.h"

namespace gradbus::test {

inline constexpr uint64_t kJob = 77;
inline constexpr uint64_t kLinkKey = 99;

inline std::unique_ptr<Transport> loopback_by(const Clock& clock) {
  auto transport = find_transport("loopback")->create({.clock = &clock});
  EXPECT_TRUE(transport.ok());
  return transport.take();
}
inline std::unique_ptr<Transport> loopback() { return loopback_by(monotonic_clock()); }

// The state of a client process.
struct FakeClient {
  std::shared_ptr<Channel> channel;
  RingProducer<Submission> submissions;
  RingConsumer<CompletionRecord> completions;
};

struct Node {
  explicit Node(std::unique_ptr<Transport> made)
      : address(made->local_address()), engine(std::move(made), broken, 2) {}
  std::string address;
  Mailbox<JobBroken> broken;
  std::shared_ptr<FidelityBoard> fidelity = std::make_shared<FidelityBoard>();
  std::shared_ptr<StalenessBoard> staleness = std::make_shared<StalenessBoard>();
  std::shared_ptr<JobTraffic> traffic;
  Engine engine;
  ShmQuota quota{256 << 20, 0};
  std::vector<std::unique_ptr<Arena>> arenas;
  std::vector<uint32_t> ranks;  // by local rank
  std::vector<FakeClient> clients;
  std::vector<LocalReduction> local_reductions;
  // For a node whose tensor is not in its arena (Layout::place): the ranks' buffers, and a function
  // that waits for the data that completions announce.
  std::vector<float*> rank_buffers_elsewhere;
  std::function<void()> settle = [] {};
};

struct Layout {
  uint32_t agents = 2;
  uint32_t ranks_per_agent = 1;
  uint32_t shards = 0;       // nodes after the agents
  bool interleaved = false;  // rank r on agent r % agents; false: neighbours share an agent
  std::function<std::unique_ptr<Transport>()> transport = loopback;
  std::shared_ptr<SnapshotKeeper> keeper = nullptr;  // shared by all shards
  uint64_t run = 1;
  PlacementPattern pattern = nullptr;
  // Places an agent's tensor before the agent gets it.
  std::function<void(Node&, AddTensor&)> place = nullptr;

  uint32_t world() const { return agents * ranks_per_agent; }
  uint32_t agent_of(uint32_t rank) const {
    return interleaved ? rank % agents : rank / ranks_per_agent;
  }
};

class Cluster {
 public:
  Cluster(uint32_t agents, uint32_t ranks_per_agent)
      : Cluster(Layout{.agents = agents, .ranks_per_agent = ranks_per_agent}) {}
  explicit Cluster(const Layout& layout) : layout_(layout) {
    for (uint32_t i = 0; i < layout.agents + layout.shards; ++i)
      nodes.push_back(std::make_unique<Node>(layout.transport()));
    for (uint32_t i = 0; i < layout.agents; ++i) start_job(i);
    for (uint32_t i = 0; i < layout.shards; ++i) start_shard(i);
  }

  const Layout& layout() const { return layout_; }
  uint64_t received_by_shard(uint32_t shard) const { return shard_traffic_[shard]->received_bytes; }

  void add_tensor(uint32_t id, uint64_t count, uint64_t chunk, ReduceOp op = ReduceOp::kSum,
                  Algorithm algorithm = Algorithm::kRing) {
    TensorSpec spec;
    spec.count = count;
    spec.op = op;
    add_tensor(id, spec, chunk, algorithm);
  }
  void add_tensor(uint32_t id, const TensorSpec& spec, uint64_t chunk, Algorithm algorithm) {
    for (uint32_t i = 0; i < layout_.agents; ++i) add_tensor(*nodes[i], id, spec, chunk, algorithm);
  }
  // Adds a tensor that shards aggregate in this `mode`.
  void add_on_shards(uint32_t id, const TensorSpec& spec, uint64_t chunk, const std::string& mode) {
    add_to_agents(id, spec, chunk, parse_mode(mode).take());
    add_to_shards(id, spec, chunk, mode);
  }
  void add_to_agents(uint32_t id, const TensorSpec& spec, uint64_t chunk, const SyncMode& mode,
                     const CompressionPlan& compression = {}) {
    for (uint32_t i = 0; i < layout_.agents; ++i)
      add_tensor(*nodes[i], id, spec, chunk, Algorithm::kShards, compression, mode);
  }
  // Adds it to one shard after the other, with `turns` turns of work between them.
  void add_to_shards(uint32_t id, const TensorSpec& spec, uint64_t chunk, const std::string& mode,
                     int turns_between = 0, const CompressionPlan& compression = {}) {
    for (uint32_t i = 0; i < shards(); ++i) {
      add_to_shard(i, id, spec, chunk, mode, compression);
      if (parse_mode(mode).take().replicas > 1) add_copy(i, id, spec, chunk, mode, compression);
      turn(turns_between);
    }
  }
  // ---- shards that are added: the node, then the message to all others
  uint32_t add_shard() {
    const auto shard = static_cast<uint32_t>(nodes.size()) - layout_.agents;
    nodes.push_back(std::make_unique<Node>(layout_.transport()));
    start_shard(shard, shard + 1);
    for (uint32_t i = 0; i + 1 < nodes.size(); ++i)
      nodes[i]->engine.post(AddShards{kJob, {nodes.back()->address}, {}});
    return shard;
  }
  // Tensors that are added from now on are on these shards and start with the state of `from`.
  void move_to(const std::vector<uint16_t>& members, const ReshardingPlan& from) {
    members_ = std::make_shared<const std::vector<uint16_t>>(members);
    moved_ = from;
  }

  // Adds the copy of the chunks on the previous shard.
  void add_copy(uint32_t shard, uint32_t id, const TensorSpec& spec, uint64_t chunk,
                const std::string& mode, const CompressionPlan& compression = {}) {
    add_to_shard(backed_up_by(shard, shards()), id, spec, chunk, mode, compression, shard);
  }
  void add_to_shard(uint32_t shard, uint32_t id, const TensorSpec& spec, uint64_t chunk,
                    const std::string& mode, const CompressionPlan& compression = {},
                    std::optional<uint32_t> on = std::nullopt) {
    ShardPlan plan;
    plan.collective.algorithm = Algorithm::kShards;
    plan.collective.dtype = spec.dtype;
    plan.collective.op = spec.op;
    plan.collective.count = spec.count;
    plan.collective.chunk_elements = chunk;
    plan.collective.agents = layout_.agents;
    plan.collective.shards = shards();
    plan.collective.members = members_;
    plan.moved = moved_;
    plan.collective.tensor = id;
    plan.collective.pattern = moved_ ? nullptr : layout_.pattern;
    plan.name = "t";
    plan.shard = shard;
    plan.last = reduction_after_nodes(spec, layout_.world());
    plan.mode = parse_mode(mode).take();
    plan.collective.one_shard = plan.mode.keeps_tensors_whole();
    plan.ranks.assign(layout_.agents, layout_.ranks_per_agent);
    plan.compression = compression;
    plan.tensor_seed = tensor_seed(kJob, id);
    const uint32_t place = on.value_or(shard);
    Engine& engine = nodes[layout_.agents + (moved_ ? (*members_)[place] : place)]->engine;
    AddShardTensor command{kJob, plan};
    command.copy = on.has_value();
    command.begins_move = moved_ && (on || plan.mode.replicas < 2);
    if (!plan.mode.restore) return engine.post(command);
    layout_.keeper->restore("job", {layout_.run}, plan, [&engine, command](auto restored) {
      AddShardTensor add = command;
      if (restored.ok()) add.restored = restored.take();
      add.restore_failed = restored.status();
      engine.post(std::move(add));
    });
  }
  // Adds a compressed tensor, on the shards if the layout has any.
  void add_compressed(uint32_t id, const TensorSpec& spec, uint64_t chunk, Algorithm algorithm,
                      const CompressionPlan& compression, const std::string& mode = "ps:sync") {
    const SyncMode parsed = parse_mode(mode).take();
    const uint32_t replicas = std::max(1U, parsed.replicas);
    for (uint32_t i = 0; i < layout_.agents; ++i)
      add_tensor(*nodes[i], id, spec, chunk, layout_.shards > 0 ? Algorithm::kShards : algorithm,
                 compression, parsed);
    for (uint32_t i = 0; i < shards(); ++i) {
      add_to_shard(i, id, spec, chunk, mode, compression);
      if (replicas > 1) add_copy(i, id, spec, chunk, mode, compression);
    }
  }
  void add_tensor(Node& node, uint32_t id, const TensorSpec& spec, uint64_t chunk,
                  Algorithm algorithm, const CompressionPlan& compression = {},
                  const SyncMode& mode = {}) {
    AddTensor add;
    add.job = kJob;
    add.plan.id = id;
    add.plan.spec = spec;
    add.plan.spec.name = "t";
    add.plan.mode = mode;
    add.plan.chunk_elements = chunk;
    if (algorithm == Algorithm::kShards) {
      PsPlan ps;
      ps.shards = {shards(), moved_ ? nullptr : layout_.pattern, members_};
      ps.replicas = std::max(1U, mode.replicas);
      ps.compression = compression;
      if (moved_ && moved_->tensor != 0) ps.moved_from = MovedFrom{moved_->tensor, 1, 0};
      add.plan.exchange = ps;
    } else if (compression.spec.none()) {
      add.plan.exchange = DensePlan{algorithm};
    } else {
      add.plan.exchange = CompressedPlan{algorithm, compression};
    }
    const bool leaves_node = layout_.agents > 1 || algorithm == Algorithm::kShards;
    add.last = leaves_node ? reduction_after_nodes(spec, layout_.world())
                           : last_reduction(spec, layout_.world());
    add.shape = make_local_reduction_shape(spec, chunk,
                                           {layout_.world(), layout_.ranks_per_agent, leaves_node});
    add.slot = node.arenas[0]->place(add.shape).take();
    add.shape.data_stride = add.slot.data_stride;
    add.segment = node.arenas[0]->segments()[add.slot.segment];
    node.local_reductions.emplace_back(add.segment->at(add.slot.local_reduction_offset),
                                       add.segment->at(add.slot.data_offset), add.shape);
    if (layout_.place) layout_.place(node, add);
    node.engine.post(std::move(add));
  }

  void post(uint32_t agent, uint32_t local, uint32_t tensor, uint64_t round, uint64_t bytes = 0) {
    Submission record{};
    record.kind = static_cast<uint32_t>(SubmissionKind::kPosted);
    record.bytes = bytes;
    post(agent, local, tensor, round, record);
  }
  // Posts a record of another kind, or with more fields.
  void post(uint32_t agent, uint32_t local, uint32_t tensor, uint64_t round, Submission record) {
    record.tensor = tensor;
    record.round = round;
    nodes[agent]->local_reductions[tensor].post(local, round, record.bytes);
    ASSERT_EQ(nodes[agent]->clients[local].submissions.push(record), Push::kDone);
  }

  void end_job() {
    for (auto& node : nodes) node->engine.post(EndJob{kJob});
    turn(100);
    if (layout_.keeper != nullptr) layout_.keeper->drain();
  }

  float* data(uint32_t agent, uint32_t rank_buffer, uint32_t tensor) {
    if (!nodes[agent]->rank_buffers_elsewhere.empty())
      return nodes[agent]->rank_buffers_elsewhere[rank_buffer];
    return reinterpret_cast<float*>(
        nodes[agent]->local_reductions[tensor].rank_buffer(rank_buffer));
  }

  // The node is gone; an idle one replaces it.
  void kill(uint32_t index) { nodes[index] = std::make_unique<Node>(loopback()); }

  void turn(int times) {
    for (int i = 0; i < times; ++i)
      for (auto& node : nodes) node->engine.do_work();
  }

  // Runs turns until every client has `count` completions, or a deadline ends.
  std::vector<CompletionRecord> completions(uint32_t agent, uint32_t local, size_t count) {
    std::vector<CompletionRecord> got;
    CompletionRecord record;
    for (const Nanos deadline = monotonic_now() + 30 * kSecond;
         got.size() < count && monotonic_now() < deadline; turn(1))
      while (nodes[agent]->clients[local].completions.pop(record) == Pop::kRecord)
        got.push_back(record);
    return got;
  }

  // The first broken job that an agent reports; empty after a deadline.
  std::vector<JobBroken> broken(uint32_t agent) {
    std::vector<JobBroken> found;
    for (const Nanos deadline = monotonic_now() + 30 * kSecond;
         found.empty() && monotonic_now() < deadline; turn(1))
      found = nodes[agent]->broken.take();
    return found;
  }

  std::vector<std::unique_ptr<Node>> nodes;

 private:
  void start_job(uint32_t index) {
    Node& node = *nodes[index];
    node.arenas.push_back(
        std::make_unique<Arena>("job", layout_.ranks_per_agent, layout_.world(), node.quota));
    ASSERT_TRUE(node.arenas[0]->open().ok());
    StartJob start;
    start.job = kJob;
    start.name = "job";
    start.epoch = 1;
    start.link_key = kLinkKey;
    start.agent_index = index;
    start.agents = layout_.agents;
    start.shards = layout_.shards;
    for (const auto& other : nodes) start.agent_addresses.push_back(other->address);
    for (uint32_t rank = 0; rank < layout_.world(); ++rank) {
      start.agent_of_rank.push_back(layout_.agent_of(rank));
      if (layout_.agent_of(rank) == index) node.ranks.push_back(rank);
    }
    start.local_ranks = node.ranks;
    for (size_t i = 0; i < node.ranks.size(); ++i) start.channels.push_back(add_client(node));
    node.traffic = start.traffic;
    start.fidelity = node.fidelity;
    start.staleness = node.staleness;
    node.engine.post(std::move(start));
  }

  void start_shard(uint32_t shard, uint32_t shards = 0) {
    StartShardJob start{kJob, "job", 1, kLinkKey, shard, layout_.agents, {}, {}, layout_.keeper};
    start.run = layout_.run;
    start.shards = std::max(shards, layout_.shards);
    for (const auto& other : nodes) start.addresses.push_back(other->address);
    start.traffic = std::make_shared<JobTraffic>();
    shard_traffic_.push_back(start.traffic);
    nodes[layout_.agents + shard]->engine.post(std::move(start));
  }

  static std::shared_ptr<Channel> add_client(Node& node) {
    std::shared_ptr<Channel> channel = create_channel("c").take();
    std::byte* base = channel->segment->at(0);
    node.clients.push_back(
        {channel, RingProducer<Submission>(RingMemory::at(base + kSubmissionRingOffset)),
         RingConsumer<CompletionRecord>(RingMemory::at(base + kCompletionRingOffset))});
    return channel;
  }

  uint32_t shards() const {
    return moved_ ? static_cast<uint32_t>(members_->size()) : layout_.shards;
  }

  const Layout layout_;
  ShardMembers members_;
  std::optional<ReshardingPlan> moved_;
  std::vector<std::shared_ptr<JobTraffic>> shard_traffic_;
};

}  // namespace gradbus::test
