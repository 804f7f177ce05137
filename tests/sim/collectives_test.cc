// Properties of the collectives that must hold for every seed. GRADBUS_SIM_SEED=<n> runs that seed
// alone in each test; a failure prints the seed, also when it is a check that aborts.

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "tests/sim/ring_simulation.h"

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

TEST(CollectivesSim, EveryRoundOfEveryTensorEndsRightInAnyOrder) {
  for_seeds(3000, [](uint64_t seed) {
    RingSimulation simulation(random_scenario(seed));
    EXPECT_EQ(simulation.run(), "");
  });
}

TEST(CollectivesSim, OppositeOrdersWithFourBuffersDoNotDeadlock) {
  for_seeds(50, [](uint64_t seed) {
    RingSimulation simulation(opposite_orders(seed, 50, 4));
    EXPECT_EQ(simulation.run(), "");
  });
}

TEST(CollectivesSim, OneReceiveBufferIsEnough) {
  for_seeds(50, [](uint64_t seed) {
    Scenario scenario = opposite_orders(seed, 20, 1);
    scenario.wire_frames = 1;
    RingSimulation simulation(scenario);
    EXPECT_EQ(simulation.run(), "");
  });
}

TEST(CollectivesSim, MutatedFramesAndCreditsAreRefusedAndChangeNothing) {
  for_seeds(600, [](uint64_t seed) {
    Scenario scenario = random_scenario(seed);
    scenario.corrupt = true;
    RingSimulation simulation(scenario);
    EXPECT_EQ(simulation.run(), "");
    EXPECT_GT(simulation.corrupt_offered(), 0u);
  });
}

TEST(CollectivesSim, EachAgentSendsTwoTimesAllButOneOfTheTensor) {
  for_seeds(10, [](uint64_t seed) {
    for (uint32_t agents = 2; agents <= 6; ++agents) {
      const uint64_t per_agent = 4;  // chunks that each agent owns
      RingSimulation simulation(one_all_reduce(seed, agents, per_agent * agents));
      ASSERT_EQ(simulation.run(), "");
      for (uint32_t agent = 0; agent < agents; ++agent) {
        EXPECT_EQ(simulation.frames_sent(agent), uint64_t{2} * (agents - 1) * per_agent);
      }
    }
  });
}

TEST(CollectivesSim, MoreChunksThanSendsInFlight) {
  for_seeds(5, [](uint64_t seed) {
    RingSimulation simulation(one_all_reduce(seed, 3, uint64_t{10} * kSendsInFlightMax + 1));
    EXPECT_EQ(simulation.run(), "");
  });
}

}  // namespace
}  // namespace gradbus::sim
