// Tests every collective with every algorithm on real engines and local reductions. The transport
// is reliable, or it delays, reorders and refuses. Values are small integers in f32, so all sums
// are exact. The definition of the collective gives the expected result of each rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "proto/algorithms.h"
#include "tests/unit/data_plane/engine_cluster.h"
#include "transport/faulty/faulty.h"

namespace gradbus {
namespace {

using test::Cluster;
using test::kJob;
using test::kLinkKey;
using test::Layout;
using test::Node;

constexpr uint64_t kChunkElements = 64;

float value_of(uint32_t source, uint64_t i, uint64_t round) {
  return static_cast<float>(source * 16 + i % 13 + round);
}

struct Case {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  Algorithm algorithm = Algorithm::kRing;
  uint64_t count = 0;

  TensorSpec spec(uint32_t world) const {
    TensorSpec spec;
    spec.name = "t";
    spec.count = count;
    spec.kind = kind;
    spec.op = reduces(kind) ? ReduceOp::kAverage : ReduceOp::kNone;
    spec.root = has_root(kind) ? world / 2 : 0;
    if (reduces(kind)) spec.postscale = 4;
    return spec;
  }
  uint64_t chunk() const {
    return algorithm == Algorithm::kRecursiveDoubling ? std::max<uint64_t>(count, 1)
                                                      : kChunkElements;
  }
};

class Exercise {
 public:
  Exercise(const Layout& layout, const Case& what)
      : cluster_(layout), case_(what), spec_(what.spec(layout.world())) {
    cluster_.add_tensor(0, spec_, what.chunk(), what.algorithm);
  }

  void run_round(uint64_t round) {
    for (uint32_t agent = 0; agent < cluster_.nodes.size(); ++agent) {
      for (uint32_t local = 0; local < ranks(agent).size(); ++local) {
        write(agent, local, round);
        cluster_.post(agent, local, 0, round, block_bytes(ranks(agent)[local], round));
      }
    }
    for (uint32_t agent = 0; agent < cluster_.nodes.size(); ++agent) {
      for (uint32_t local = 0; local < ranks(agent).size(); ++local) {
        const auto done = cluster_.completions(agent, local, 1);
        ASSERT_EQ(done.size(), 1u) << why(agent);
        ASSERT_EQ(done[0].round, round);
        check(agent, local, round);
      }
    }
  }

 private:
  const std::vector<uint32_t>& ranks(uint32_t agent) { return cluster_.nodes[agent]->ranks; }
  uint32_t world() const { return cluster_.layout().world(); }
  bool has_lengths() const {
    return case_.kind == CollectiveKind::kAllGather || case_.kind == CollectiveKind::kGather;
  }
  uint64_t elements(uint32_t rank, uint64_t round) const {
    return has_lengths() ? (rank * 37 + round * 11) % (case_.count + 1) : case_.count;
  }
  uint64_t block_bytes(uint32_t rank, uint64_t round) const {
    return has_lengths() ? elements(rank, round) * sizeof(float) : 0;
  }
  std::string why(uint32_t agent) {
    const auto broken = cluster_.nodes[agent]->broken.take();
    return broken.empty() ? "no completion" : broken[0].status.message();
  }

  // Writes the blocks of a rank, as the client library does.
  void write(uint32_t agent, uint32_t local, uint64_t round) {
    const uint32_t rank = ranks(agent)[local];
    const auto fill = [&](uint32_t rank_buffer, uint32_t source) {
      float* to = cluster_.data(agent, rank_buffer, 0);
      for (uint64_t i = 0; i < case_.count; ++i) to[i] = value_of(source, i, round);
    };
    switch (case_.kind) {
      case CollectiveKind::kAllReduce:
      case CollectiveKind::kReduce:
      case CollectiveKind::kReduceScatter: return fill(local, rank);
      case CollectiveKind::kAllGather:
      case CollectiveKind::kGather: return fill(rank, rank);
      case CollectiveKind::kBroadcast:
        if (rank == spec_.root) fill(0, rank);
        return;
      case CollectiveKind::kScatter:
        for (uint32_t to = 0; rank == spec_.root && to < world(); ++to) fill(to, to);
        return;
      case CollectiveKind::kAllToAll:
        for (uint32_t to = 0; to < world(); ++to) fill(rank * world() + to, rank * 5 + to);
    }
  }

  void expect_block(uint32_t agent, uint32_t rank_buffer, uint32_t source, uint64_t count,
                    uint64_t round) {
    const float* got = cluster_.data(agent, rank_buffer, 0);
    for (uint64_t i = 0; i < count; ++i)
      ASSERT_EQ(got[i], value_of(source, i, round)) << "block " << rank_buffer << " element " << i;
  }

  void check(uint32_t agent, uint32_t local, uint64_t round) {
    const uint32_t rank = ranks(agent)[local];
    switch (case_.kind) {
      case CollectiveKind::kAllReduce: return check_sums(agent, local, round, 0, case_.count);
      case CollectiveKind::kReduce:
        if (rank == spec_.root) check_sums(agent, local, round, 0, case_.count);
        return;
      case CollectiveKind::kReduceScatter: {
        const ChunkPlan plan{case_.count, 1, world(), kChunkElements};
        return check_sums(agent, local, round, plan.shard_first(rank), plan.shard_first(rank + 1));
      }
      case CollectiveKind::kBroadcast:
        return expect_block(agent, 0, spec_.root, case_.count, round);
      case CollectiveKind::kGather:
        if (rank != spec_.root) return;
        [[fallthrough]];
      case CollectiveKind::kAllGather:
        for (uint32_t from = 0; from < world(); ++from)
          expect_block(agent, from, from, elements(from, round), round);
        return;
      case CollectiveKind::kScatter: return expect_block(agent, rank, rank, case_.count, round);
      case CollectiveKind::kAllToAll:
        for (uint32_t from = 0; from < world(); ++from)
          expect_block(agent, from * world() + rank, from * 5 + rank, case_.count, round);
    }
  }

  // Checks the average times postscale.
  void check_sums(uint32_t agent, uint32_t local, uint64_t round, uint64_t first, uint64_t last) {
    for (uint64_t i = first; i < last; ++i) {
      double sum = 0;
      for (uint32_t rank = 0; rank < world(); ++rank) sum += value_of(rank, i, round);
      ASSERT_FLOAT_EQ(cluster_.data(agent, local, 0)[i], static_cast<float>(sum / world() * 4))
          << "element " << i;
    }
  }

  Cluster cluster_;
  const Case case_;
  const TensorSpec spec_;
};

std::vector<Case> all_cases(std::vector<uint64_t> counts) {
  std::vector<Case> cases;
  for (uint32_t kind = 1; is_collective(kind); ++kind)
    for (uint32_t algorithm = 0; is_algorithm(algorithm); ++algorithm)
      for (const uint64_t count : counts)
        if (fits(static_cast<CollectiveKind>(kind), static_cast<Algorithm>(algorithm)))
          cases.push_back(
              {static_cast<CollectiveKind>(kind), static_cast<Algorithm>(algorithm), count});
  return cases;
}

void exercise(const Layout& layout, const Case& what) {
  SCOPED_TRACE(std::string(collective_name(what.kind)) + " by " +
               std::string(algorithm_name(what.algorithm)) + ", " + std::to_string(what.count) +
               " elements, " + std::to_string(layout.agents) + " agents of " +
               std::to_string(layout.ranks_per_agent) +
               (layout.interleaved ? ", interleaved" : ""));
  Exercise run(layout, what);
  for (uint64_t round = 1; round <= 3 && !testing::Test::HasFatalFailure(); ++round)
    run.run_round(round);
}

TEST(EngineCollectives, EveryKindByEveryAlgorithm) {
  for (const Case& what : all_cases({0, 1, kChunkElements, 3 * kChunkElements + 7})) {
    for (const uint32_t agents : {2u, 3u, 5u}) {
      exercise({.agents = agents, .ranks_per_agent = 1}, what);
      exercise({.agents = agents, .ranks_per_agent = 2, .interleaved = true}, what);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(EngineCollectives, EveryKindOverANetworkThatDelaysReordersAndRefuses) {
  uint64_t seed = 1;
  for (const Case& what : all_cases({5 * kChunkElements + 3})) {
    Layout layout{.agents = 4, .ranks_per_agent = 2, .interleaved = true};
    layout.transport = [&] {
      return make_faulty(test::loopback(),
                         {.seed = seed++, .busy = 0.2, .delay = 0.3, .reorder = true});
    };
    exercise(layout, what);
    if (HasFatalFailure()) return;
  }
}

// The transport's checksum detects a flipped bit. The job must end with an error, not with a sum.
TEST(EngineCollectives, ACorruptFrameEndsTheJobByName) {
  for (const Case& what : all_cases({kChunkElements})) {
    Layout layout{.agents = 2, .ranks_per_agent = 1};
    layout.transport = [] { return make_faulty(test::loopback(), {.corrupt = 1}); };
    Cluster cluster(layout);
    cluster.add_tensor(0, what.spec(2), what.chunk(), what.algorithm);
    for (uint32_t agent = 0; agent < 2; ++agent) cluster.post(agent, 0, 0, 1);
    const auto broken = cluster.broken(0);
    ASSERT_EQ(broken.size(), 1u);
    EXPECT_THAT(broken[0].status.message(),
                testing::HasSubstr("the link from agent 0 (rank 0) to agent 1 (rank 1) ended"));
  }
}

// Agent 1 is frozen. Agent 0 scatters to both. Frames for agent 2 must not be delayed.
TEST(EngineCollectives, APeerThatStallsStopsNothingThatGoesToOthers) {
  Cluster cluster(3, 1);
  TensorSpec spec;
  spec.count = 200 * kChunkElements;
  spec.kind = CollectiveKind::kScatter;
  spec.op = ReduceOp::kNone;
  cluster.add_tensor(0, spec, kChunkElements, Algorithm::kDirect);
  cluster.turn(50);
  for (uint32_t agent = 0; agent < 3; ++agent) cluster.post(agent, 0, 0, 1);
  cluster.nodes[1]->engine.do_work();  // gives its credit, so that frames are sent to it
  CompletionRecord record;
  const Nanos deadline = monotonic_now() + 30 * kSecond;
  bool done = false;
  while (!done && monotonic_now() < deadline) {
    cluster.nodes[0]->engine.do_work();
    cluster.nodes[2]->engine.do_work();
    done = cluster.nodes[2]->clients[0].completions.pop(record) == Pop::kRecord;
  }
  EXPECT_TRUE(done);
  EXPECT_EQ(cluster.nodes[0]->clients[0].completions.pop(record), Pop::kEmpty);
  EXPECT_EQ(cluster.completions(1, 0, 1).size(), 1u);  // now it runs again
  EXPECT_EQ(cluster.completions(0, 0, 1).size(), 1u);
}

TEST(EngineCollectives, TheAgentThatIsLostIsTheOneThatIsNamed) {
  for (const uint32_t lost : {1u, 2u, 3u}) {
    Cluster cluster(4, 1);
    cluster.add_tensor(0, 10, 10, ReduceOp::kSum, Algorithm::kHalvingDoubling);
    TensorSpec blocks;
    blocks.count = 10;
    blocks.kind = CollectiveKind::kAllToAll;
    blocks.op = ReduceOp::kNone;
    cluster.add_tensor(1, blocks, 10, Algorithm::kDirect);
    cluster.turn(50);
    cluster.nodes.erase(cluster.nodes.begin() + lost);
    const auto broken = cluster.broken(0);
    ASSERT_EQ(broken.size(), 1u);
    EXPECT_EQ(broken[0].status.code(), Code::kPeerLost);
    EXPECT_THAT(broken[0].status.message(),
                testing::HasSubstr(" to agent " + std::to_string(lost) + " (rank " +
                                   std::to_string(lost) + ") ended"));
  }
}

// Agent 0 knows the tensor long before agent 1. Eager frames must not arrive before it is known.
TEST(EngineCollectives, AnEagerSumWaitsUntilThePeerKnowsTheTensor) {
  Cluster cluster(2, 1);
  TensorSpec spec;
  spec.count = 10;
  cluster.add_tensor(*cluster.nodes[0], 0, spec, 10, Algorithm::kRecursiveDoubling);
  cluster.turn(20);
  cluster.post(0, 0, 0, 1);
  cluster.turn(200);
  cluster.add_tensor(*cluster.nodes[1], 0, spec, 10, Algorithm::kRecursiveDoubling);
  cluster.post(1, 0, 0, 1);
  EXPECT_EQ(cluster.completions(0, 0, 1).size(), 1u);
  EXPECT_EQ(cluster.completions(1, 0, 1).size(), 1u);
  for (auto& node : cluster.nodes) EXPECT_TRUE(node->broken.take().empty());
}

struct Impostor {
  const char* what;
  uint32_t source;
  uint32_t epoch;
  uint64_t key;
};

TEST(EngineCollectives, LinksWithoutAJobAndSecondLinksAreRefused) {
  const Impostor impostors[] = {
      {"wrong key", 1, 1, kLinkKey + 1},    {"wrong epoch", 1, 2, kLinkKey},
      {"the agent itself", 0, 1, kLinkKey}, {"no such agent", 2, 1, kLinkKey},
      {"a second link", 1, 1, kLinkKey},
  };
  Cluster cluster(2, 1);
  cluster.add_tensor(0, 10, 10);
  cluster.turn(50);
  for (const Impostor& impostor : impostors) {
    auto transport = test::loopback();
    FrameHeader hello;
    hello.source = impostor.source;
    hello.job = kJob;
    hello.epoch = impostor.epoch;
    hello.total = impostor.key;
    ASSERT_TRUE(transport->connect(cluster.nodes[0]->address, hello).ok());
    bool closed = false;
    const Nanos deadline = monotonic_now() + 30 * kSecond;
    for (TransportEvent event; !closed && monotonic_now() < deadline; cluster.turn(1))
      while (transport->poll({&event, 1}) == 1)
        closed = closed || event.kind == TransportEvent::Kind::kClosed;
    EXPECT_TRUE(closed) << impostor.what;
  }
  for (uint32_t agent = 0; agent < 2; ++agent) cluster.post(agent, 0, 0, 1);
  EXPECT_EQ(cluster.completions(0, 0, 1).size(), 1u);
}

}  // namespace
}  // namespace gradbus
