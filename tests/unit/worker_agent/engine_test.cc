// The engine without threads: two or three engines over the loopback transport are turned by hand,
// with clients that are only rings and cells. Sums are exact, completions come once, nonsense in a
// ring or a lost link ends that job only.
#include "worker_agent/engine.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "transport/registry.h"

namespace gradbus {
namespace {

constexpr uint64_t kJob = 77;

std::unique_ptr<Transport> loopback() {
  auto transport = find_transport("loopback")->create({});
  EXPECT_TRUE(transport.ok());
  return transport.take();
}

// What a client process would hold.
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
  Engine engine;
  ShmQuota quota{256 << 20, 0};
  std::vector<std::unique_ptr<Arena>> arenas;
  std::vector<FakeClient> clients;
  std::vector<Cell> cells;
};

class Cluster {
 public:
  Cluster(uint32_t agents, uint32_t ranks_per_agent) : ranks_(ranks_per_agent) {
    for (uint32_t i = 0; i < agents; ++i) nodes.push_back(std::make_unique<Node>(loopback()));
    for (uint32_t i = 0; i < agents; ++i) start_job(i);
  }

  void add_tensor(uint32_t id, uint64_t count, uint64_t chunk, ReduceOp op = ReduceOp::kSum) {
    for (auto& node : nodes) {
      CellShape shape;
      shape.count = count;
      shape.chunk_elements = chunk;
      shape.chunks = static_cast<uint32_t>(std::max<uint64_t>((count + chunk - 1) / chunk, 1));
      shape.local_size = ranks_;
      shape.remote = nodes.size() > 1;
      const Placement place = node->arenas[0]->place(shape).take();
      shape.data_stride = place.data_stride;
      const auto segment = node->arenas[0]->segments()[place.segment];
      node->cells.emplace_back(segment->at(place.cell_offset), segment->at(place.data_offset),
                               shape);
      node->engine.post(AddTensor{kJob, id, "t", op, 0, shape, place, segment});
    }
  }

  void post(uint32_t agent, uint32_t local, uint32_t tensor, uint64_t round) {
    nodes[agent]->cells[tensor].post(local, round);
    const Submission record{1, tensor, round, 0, {}};
    ASSERT_EQ(nodes[agent]->clients[local].submissions.push(record), Push::kDone);
  }

  float* data(uint32_t agent, uint32_t local, uint32_t tensor) {
    return reinterpret_cast<float*>(nodes[agent]->cells[tensor].area(local));
  }

  void turn(int times) {
    for (int i = 0; i < times; ++i)
      for (auto& node : nodes) node->engine.do_work();
  }

  // Turns until every client has `count` completions, or a deadline.
  std::vector<CompletionRecord> completions(uint32_t agent, uint32_t local, size_t count) {
    std::vector<CompletionRecord> got;
    CompletionRecord record;
    for (const Nanos deadline = monotonic_now() + 30 * kSecond;
         got.size() < count && monotonic_now() < deadline; turn(1))
      while (nodes[agent]->clients[local].completions.pop(record) == Pop::kRecord)
        got.push_back(record);
    return got;
  }

  std::vector<std::unique_ptr<Node>> nodes;

 private:
  void start_job(uint32_t index) {
    Node& node = *nodes[index];
    const auto agents = static_cast<uint32_t>(nodes.size());
    node.arenas.push_back(std::make_unique<Arena>("job", ranks_, ranks_ * agents, node.quota));
    ASSERT_TRUE(node.arenas[0]->open().ok());
    StartJob start;
    start.job = kJob;
    start.name = "job";
    start.epoch = 1;
    start.link_key = 99;
    start.agent_index = index;
    start.agents = agents;
    start.successor_address = nodes[(index + 1) % agents]->address;
    for (uint32_t rank = 0; rank < ranks_ * agents; ++rank)
      start.agent_of_rank.push_back(rank / ranks_);
    for (uint32_t local = 0; local < ranks_; ++local) {
      start.local_ranks.push_back(index * ranks_ + local);
      start.channels.push_back(create_channel("c").take());
      std::byte* base = start.channels.back()->segment->at(0);
      node.clients.push_back(
          {start.channels.back(),
           RingProducer<Submission>(RingMemory::at(base + kSubmissionRingOffset)),
           RingConsumer<CompletionRecord>(RingMemory::at(base + kCompletionRingOffset))});
    }
    start.traffic = std::make_shared<JobTraffic>();
    node.engine.post(std::move(start));
  }

  uint32_t ranks_;
};

void expect_sums(uint32_t agents, uint32_t ranks, uint64_t count, uint64_t chunk, ReduceOp op) {
  Cluster cluster(agents, ranks);
  cluster.add_tensor(0, count, chunk, op);
  const uint32_t world = agents * ranks;
  for (uint64_t round = 1; round <= 3; ++round) {
    for (uint32_t agent = 0; agent < agents; ++agent)
      for (uint32_t local = 0; local < ranks; ++local) {
        for (uint64_t i = 0; i < count; ++i)
          cluster.data(agent, local, 0)[i] =
              static_cast<float>((agent * ranks + local) * 4 + i % 9 + round);
        cluster.post(agent, local, 0, round);
      }
    const double divisor = op == ReduceOp::kAverage ? world : 1;
    for (uint32_t agent = 0; agent < agents; ++agent)
      for (uint32_t local = 0; local < ranks; ++local) {
        const auto done = cluster.completions(agent, local, 1);
        ASSERT_EQ(done.size(), 1u)
            << "agents " << agents << " ranks " << ranks << " round " << round;
        EXPECT_EQ(done[0].round, round);
        EXPECT_EQ(done[0].code, 0u);
        for (uint64_t i = 0; i < count; ++i) {
          const double sum =
              world * (world - 1) / 2.0 * 4 + world * static_cast<double>(i % 9 + round);
          ASSERT_FLOAT_EQ(cluster.data(agent, local, 0)[i], static_cast<float>(sum / divisor)) << i;
        }
      }
  }
  for (auto& node : cluster.nodes) EXPECT_TRUE(node->broken.take().empty());
}

TEST(Engine, SumsOverTwoAndThreeAgents) {
  for (const uint32_t agents : {2u, 3u, 4u})
    for (const uint32_t ranks : {1u, 2u, 3u}) {
      expect_sums(agents, ranks, 1001, 100, ReduceOp::kSum);
      expect_sums(agents, ranks, 1, 64, ReduceOp::kAverage);
      expect_sums(agents, ranks, 0, 1, ReduceOp::kSum);
    }
}

TEST(Engine, OppositeOrdersOfManyTensorsDoNotBlockEachOther) {
  constexpr uint32_t kTensors = 60;
  Cluster cluster(2, 1);
  for (uint32_t id = 0; id < kTensors; ++id) cluster.add_tensor(id, 70'000, 65'536);
  for (uint32_t id = 0; id < kTensors; ++id) {
    for (uint32_t agent = 0; agent < 2; ++agent) cluster.data(agent, 0, id)[69'999] = 1;
    cluster.post(0, 0, id, 1);
    cluster.post(1, 0, kTensors - 1 - id, 1);
    cluster.turn(1);
  }
  EXPECT_EQ(cluster.completions(0, 0, kTensors).size(), kTensors);
  EXPECT_EQ(cluster.completions(1, 0, kTensors).size(), kTensors);
  for (uint32_t id = 0; id < kTensors; ++id) EXPECT_EQ(cluster.data(1, 0, id)[69'999], 2);
}

TEST(Engine, ARoundWaitsForEveryRankAndATensorForEveryAgent) {
  Cluster cluster(2, 2);
  cluster.add_tensor(0, 10, 10);
  cluster.post(0, 0, 0, 1);
  cluster.post(0, 1, 0, 1);
  cluster.post(1, 0, 0, 1);
  cluster.turn(2000);
  CompletionRecord record;
  EXPECT_EQ(cluster.nodes[0]->clients[0].completions.pop(record), Pop::kEmpty);
  cluster.post(1, 1, 0, 1);
  EXPECT_EQ(cluster.completions(0, 0, 1).size(), 1u);
}

// The conductor posts AddTensor before it tells the client, but the engine may see the client
// first.
TEST(Engine, ASubmissionThatOvertakesItsTensorIsKept) {
  Cluster cluster(2, 1);
  cluster.turn(10);
  const Submission record{1, 0, 1, 0, {}};
  for (auto& node : cluster.nodes)
    ASSERT_EQ(node->clients[0].submissions.push(record), Push::kDone);
  for (auto& node : cluster.nodes) node->engine.do_work();
  cluster.add_tensor(0, 10, 10);
  EXPECT_EQ(cluster.completions(0, 0, 1).size(), 1u);
  for (auto& node : cluster.nodes) EXPECT_TRUE(node->broken.take().empty());
}

struct Nonsense {
  const char* field;
  Submission record;
};

TEST(Engine, EveryFieldOfASubmissionIsChecked) {
  const Nonsense cases[] = {
      {"kind", {9, 0, 1, 0, {}}},
      {"tensor", {1, 1, 1, 0, {}}},
      {"tensor", {1, UINT32_MAX, 1, 0, {}}},
      {"round", {1, 0, 0, 0, {}}},
      {"round", {1, 0, UINT64_MAX, 0, {}}},
      {"bytes", {1, 0, 1, UINT64_MAX, {}}},
  };
  for (const Nonsense& bad : cases) {
    Cluster cluster(2, 1);
    cluster.add_tensor(0, 10, 10);
    cluster.turn(10);
    ASSERT_EQ(cluster.nodes[0]->clients[0].submissions.push(bad.record), Push::kDone);
    cluster.turn(10);
    const auto broken = cluster.nodes[0]->broken.take();
    ASSERT_EQ(broken.size(), 1u) << bad.field;
    EXPECT_EQ(broken[0].job, kJob);
    EXPECT_NE(broken[0].status.message().find("GB-S210"), std::string::npos);
    EXPECT_NE(broken[0].status.message().find(bad.field), std::string::npos)
        << broken[0].status.message();
  }
}

TEST(Engine, ASecondRoundBeforeTheFirstIsOverBreaksThatJobOnly) {
  Cluster cluster(2, 1);
  cluster.add_tensor(0, 10, 10);
  cluster.turn(10);
  for (const uint64_t round : {1, 2})
    ASSERT_EQ(cluster.nodes[0]->clients[0].submissions.push({1, 0, round, 0, {}}), Push::kDone);
  cluster.turn(10);
  const auto broken = cluster.nodes[0]->broken.take();
  ASSERT_EQ(broken.size(), 1u);
  EXPECT_NE(broken[0].status.message().find("field round"), std::string::npos);
}

TEST(Engine, AHostileRingTailBreaksThatJob) {
  Cluster cluster(2, 1);
  cluster.turn(5);
  std::byte* base = cluster.nodes[0]->clients[0].channel->segment->at(kSubmissionRingOffset);
  reinterpret_cast<RingControl*>(base)->tail.count.store(UINT64_MAX);
  cluster.turn(5);
  const auto broken = cluster.nodes[0]->broken.take();
  ASSERT_EQ(broken.size(), 1u);
  EXPECT_NE(broken[0].status.message().find("field tail"), std::string::npos);
}

TEST(Engine, ALostPeerBreaksTheJobAndNamesTheAgent) {
  Cluster cluster(2, 1);
  cluster.add_tensor(0, 10, 10);
  cluster.turn(50);
  cluster.nodes.pop_back();
  std::vector<JobBroken> broken;
  for (const Nanos deadline = monotonic_now() + 30 * kSecond;
       broken.empty() && monotonic_now() < deadline; cluster.turn(1))
    broken = cluster.nodes[0]->broken.take();
  ASSERT_EQ(broken.size(), 1u);
  EXPECT_EQ(broken[0].status.code(), Code::kPeerLost);
  EXPECT_NE(broken[0].status.message().find("agent 1"), std::string::npos)
      << broken[0].status.message();
}

TEST(Engine, AnEndedJobIsForgotten) {
  Cluster cluster(2, 1);
  cluster.turn(20);
  for (auto& node : cluster.nodes) node->engine.post(EndJob{kJob});
  cluster.turn(200);
  cluster.nodes[0]->engine.post(AddTensor{kJob, 0, "late", ReduceOp::kSum, 0, {}, {}, nullptr});
  cluster.turn(5);
  EXPECT_TRUE(cluster.nodes[0]->broken.take().empty());
}

}  // namespace
}  // namespace gradbus
