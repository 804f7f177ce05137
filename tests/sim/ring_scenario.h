// What a simulated job does: its agents, ranks, tensors and rounds, and how hostile the network is.
// Everything is drawn from one seed, so a seed is a test case.
#pragma once

#include <cstdint>
#include <vector>

#include "worker_agent/collectives/collective.h"

namespace gradbus::sim {

// SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators"): equal
// numbers with every standard library, and free to seed, which the oracle does per rank and round.
class Random {
 public:
  using result_type = uint64_t;
  explicit Random(uint64_t seed) : state_(seed) {}

  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return ~uint64_t{0}; }
  uint64_t operator()() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t mixed = (state_ ^ (state_ >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
  }

 private:
  uint64_t state_;
};

// In [low, high]; as good as uniform for the small ranges used here.
inline uint64_t pick(Random& random, uint64_t low, uint64_t high) {
  return low + random() % (high - low + 1);
}

struct Scenario {
  uint64_t seed = 0;
  uint32_t agents = 2;
  std::vector<uint32_t> agent_of_rank;
  std::vector<CollectivePlan> tensors;  // agent_index is filled per agent
  // An agent begins `tensor` only after it has finished `after` in the same round (-1: no such
  // rule). Always after < tensor, as in a program that waits for some operations before it starts
  // others.
  std::vector<std::vector<int>> begin_after;  // by agent, by tensor
  // Earliest begin in events, by agent, by tensor: how the orders of the agents differ.
  std::vector<std::vector<uint64_t>> begin_time;
  uint64_t rounds = 1;
  uint32_t buffers = 4;      // receive buffers of one agent, for all tensors together
  uint32_t wire_frames = 2;  // frames a link holds that left the sender and have not arrived
  bool corrupt = false;      // offer mutated frames and credits before each good one

  uint32_t world() const { return static_cast<uint32_t>(agent_of_rank.size()); }
};

// Small and varied: 2 to 5 agents, 1 to 3 ranks each in any order, up to 6 tensors, 1 to 3 rounds.
Scenario random_scenario(uint64_t seed);

// Many tensors, `buffers` receive buffers, agents that begin them in opposite orders.
Scenario opposite_orders(uint64_t seed, uint32_t tensors, uint32_t buffers);

// One all-reduce; chunks of one element.
Scenario one_all_reduce(uint64_t seed, uint32_t agents, uint64_t chunks);

}  // namespace gradbus::sim
