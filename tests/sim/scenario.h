// What a simulated job does: its agents, ranks, tensors and rounds, and how hostile the network is.
// Everything is drawn from one seed, so a seed is a test case.
#pragma once

#include <cstdint>
#include <ostream>
#include <vector>

#include "data_plane/collectives/collective.h"
#include "tests/sim/random.h"

namespace gradbus::sim {

struct Scenario {
  uint64_t seed = 0;          // of the inputs
  uint64_t network_seed = 0;  // of the order of events
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
  uint32_t buffers = 4;      // receive buffers of one link, for all tensors together
  uint32_t wire_frames = 2;  // frames a link holds that left the sender and have not arrived
  bool corrupt = false;      // offer mutated frames and credits before each good one

  uint32_t world() const { return static_cast<uint32_t>(agent_of_rank.size()); }
};

// A kind and an algorithm that fits it.
struct Way {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  Algorithm algorithm = Algorithm::kRing;
};
inline void PrintTo(const Way& way, std::ostream* out) {
  *out << collective_name(way.kind) << " " << algorithm_name(way.algorithm);
}
std::vector<Way> all_ways();

// Small and varied: 2 to 9 agents, 1 to 3 ranks each in any order, up to 6 tensors, 1 to 3 rounds.
Scenario random_scenario(uint64_t seed);

// Many tensors, `buffers` receive buffers a link, agents that begin them in opposite orders.
Scenario opposite_orders(uint64_t seed, uint32_t tensors, uint32_t buffers);

// One tensor of `count` elements in chunks of `chunk_elements` (recursive doubling: in one).
Scenario one_tensor(uint64_t seed, Way way, uint32_t agents, uint64_t count,
                    uint64_t chunk_elements);

}  // namespace gradbus::sim
