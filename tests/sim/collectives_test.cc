// Properties of the collectives that must hold for every seed. GRADBUS_SIM_SEED=<n> runs that seed
// alone in each test; a failure prints the seed, also when it is a check that aborts.

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "proto/algorithms.h"
#include "tests/sim/simulation.h"

namespace gradbus::sim {
namespace {

std::string replay_hint;

void print_replay_hint(int) {
  const ssize_t written = write(STDERR_FILENO, replay_hint.data(), replay_hint.size());
  static_cast<void>(written);
}

// Calls `test(seed)` until it has failed once.
template <typename Test>
void for_seeds(uint64_t seeds, Test test) {
  std::signal(SIGABRT, print_replay_hint);  // returning from it ends the program, as abort() does
  const char* replay = std::getenv("GRADBUS_SIM_SEED");
  const uint64_t first = replay == nullptr ? 1 : std::strtoull(replay, nullptr, 0);
  const uint64_t last = replay == nullptr ? seeds : first;
  for (uint64_t seed = first; seed <= last && !testing::Test::HasFailure(); ++seed) {
    replay_hint = "replay with GRADBUS_SIM_SEED=" + std::to_string(seed) + "\n";
    SCOPED_TRACE(replay_hint);
    test(seed);
  }
}

std::string text_of(Way way) {
  return std::string(collective_name(way.kind)) + " by " +
         std::string(algorithm_name(way.algorithm));
}

TEST(CollectivesSim, EveryRoundOfEveryTensorEndsRightInAnyOrder) {
  for_seeds(3000, [](uint64_t seed) {
    Simulation simulation(random_scenario(seed));
    EXPECT_EQ(simulation.run(), "");
  });
}

TEST(CollectivesSim, EveryWayOnTwoToNineAgentsAroundTheChunkLimits) {
  constexpr uint64_t kChunk = 4;
  for_seeds(1, [](uint64_t seed) {
    for (const Way way : all_ways()) {
      for (uint32_t agents = 2; agents <= 9; ++agents) {
        for (const uint64_t count : {uint64_t{0}, uint64_t{1}, kChunk - 1, kChunk, kChunk + 1,
                                     2 * kChunk + 3, agents * kChunk}) {
          SCOPED_TRACE(text_of(way) + " on " + std::to_string(agents) + " agents, " +
                       std::to_string(count) + " elements");
          Scenario scenario = one_tensor(seed + count, way, agents, count, kChunk);
          scenario.rounds = 2;
          ASSERT_EQ(Simulation(scenario).run(), "");
        }
      }
    }
  });
}

TEST(CollectivesSim, OppositeOrdersWithFourBuffersDoNotDeadlock) {
  for_seeds(40, [](uint64_t seed) {
    Simulation simulation(opposite_orders(seed, 40, 4));
    EXPECT_EQ(simulation.run(), "");
  });
}

TEST(CollectivesSim, OneReceiveBufferIsEnough) {
  for_seeds(60, [](uint64_t seed) {
    Scenario scenario = opposite_orders(seed, 20, 1);
    scenario.wire_frames = 1;
    Simulation simulation(scenario);
    EXPECT_EQ(simulation.run(), "");
  });
}

TEST(CollectivesSim, MutatedFramesAndCreditsAreRefusedAndChangeNothing) {
  for_seeds(600, [](uint64_t seed) {
    Scenario scenario = random_scenario(seed);
    scenario.corrupt = true;
    Simulation simulation(scenario);
    EXPECT_EQ(simulation.run(), "");
    EXPECT_GT(simulation.corrupt_offered(), 0u);
  });
}

// With roots that rotate, the binomial trees of n chunks load every agent alike, as the ring does.
TEST(CollectivesSim, EachAgentSendsTwoTimesAllButOneOfTheTensor) {
  for_seeds(5, [](uint64_t seed) {
    for (const auto algorithm : {Algorithm::kRing, Algorithm::kHalvingDoubling}) {
      for (uint32_t agents = 2; agents <= 9; ++agents) {
        const uint64_t per_agent = 4;  // chunks that each agent owns
        const Way way{CollectiveKind::kAllReduce, algorithm};
        Simulation simulation(one_tensor(seed, way, agents, per_agent * agents, 1));
        ASSERT_EQ(simulation.run(), "");
        for (uint32_t agent = 0; agent < agents; ++agent)
          EXPECT_EQ(simulation.frames_sent(agent), uint64_t{2} * (agents - 1) * per_agent);
      }
    }
  });
}

TEST(CollectivesSim, TheRingSendsWhatTheFormulaSaysWhenChunksDoNotDivide) {
  for_seeds(20, [](uint64_t seed) {
    for (uint32_t agents = 2; agents <= 5; ++agents) {
      const Way way{CollectiveKind::kAllReduce, Algorithm::kRing};
      const Scenario scenario = one_tensor(seed, way, agents, seed, 2);
      Simulation simulation(scenario);
      ASSERT_EQ(simulation.run(), "");
      for (uint32_t agent = 0; agent < agents; ++agent)
        EXPECT_EQ(simulation.frames_sent(agent), Oracle(scenario).ring_frames(0, agent));
    }
  });
}

TEST(CollectivesSim, MoreChunksThanSendsInFlight) {
  for_seeds(3, [](uint64_t seed) {
    for (const Way way : all_ways()) {
      SCOPED_TRACE(text_of(way));
      const uint64_t chunks =
          uint64_t{way.kind == CollectiveKind::kAllReduce ? 7u : 2u} * kSendsInFlightMax + 1;
      const bool squares = way.kind == CollectiveKind::kAllToAll;
      Simulation simulation(one_tensor(seed, way, 3, squares ? kSendsInFlightMax + 1 : chunks, 1));
      EXPECT_EQ(simulation.run(), "");
    }
  });
}

// ---- bits

Simulation::Results results(Scenario scenario, uint64_t network_seed, uint64_t chunk_elements) {
  scenario.network_seed = network_seed;
  CollectivePlan& plan = scenario.tensors[0];
  if (plan.algorithm != Algorithm::kRecursiveDoubling) plan.chunk_elements = chunk_elements;
  Simulation simulation(scenario);
  EXPECT_EQ(simulation.run(), "");
  return simulation.results();
}

Scenario float_sum(uint64_t seed, Way way, uint32_t agents) {
  Scenario scenario = one_tensor(seed, way, agents, 24, 8);
  scenario.tensors[0].dtype = DType::kF32;
  scenario.tensors[0].op = ReduceOp::kSum;
  return scenario;
}

TEST(CollectivesSim, DeterministicWaysGiveTheSameBitsInEveryRunAndForEveryChunkSize) {
  for_seeds(10, [](uint64_t seed) {
    for (const Way way : all_ways()) {
      if (!reduces(way.kind) || !is_deterministic(way.kind, way.algorithm)) continue;
      for (uint32_t agents = 2; agents <= 9; ++agents) {
        SCOPED_TRACE(text_of(way) + " on " + std::to_string(agents));
        const Scenario scenario = float_sum(seed, way, agents);
        const Simulation::Results first = results(scenario, 1, 8);
        EXPECT_FALSE(first.empty());
        for (const uint64_t chunk : {1, 3, 24})
          EXPECT_TRUE(results(scenario, seed * 10 + chunk, chunk) == first) << chunk;
      }
    }
  });
}

// The test above can fail: the ring's order of sums depends on the chunk, a tree's on arrival.
TEST(CollectivesSim, OtherWaysDoNot) {
  const Scenario ring = float_sum(3, {CollectiveKind::kAllReduce, Algorithm::kRing}, 5);
  EXPECT_TRUE(results(ring, 1, 8) == results(ring, 2, 8));
  EXPECT_FALSE(results(ring, 1, 8) == results(ring, 1, 1));
  const Scenario tree = float_sum(3, {CollectiveKind::kAllReduce, Algorithm::kTree}, 9);
  bool differ = false;
  for (uint64_t network = 2; network < 20; ++network)
    differ = differ || results(tree, 1, 8) != results(tree, network, 8);
  EXPECT_TRUE(differ);
}

}  // namespace
}  // namespace gradbus::sim
