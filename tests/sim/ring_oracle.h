// Inputs of a simulated job and the results they must give, by the plain formulas: element by
// element over all ranks, without chunks, agents or rings. Also the arithmetic that actions ask
// for.
//
// Integers must be exact. A float sum must lie within the rounding error of any order of additions;
// that all agents got the same bits is compared by the simulation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/ring_scenario.h"

namespace gradbus::sim {

using Bytes = std::vector<std::byte>;

class RingOracle {
 public:
  explicit RingOracle(const Scenario& scenario) : scenario_(scenario) {}

  // What `rank` brings to `round`: the tensor, or (all-gather) its block of block_bytes().
  Bytes input(uint32_t tensor, uint64_t round, uint32_t rank) const;
  // All-gather: 0 to count elements, different by rank and round.
  uint64_t block_bytes(uint32_t tensor, uint64_t round, uint32_t rank) const;

  // "" or what is wrong with the result in `area`: all-reduce: any rank's area; else the shared
  // one.
  std::string check(uint32_t tensor, uint64_t round, const Bytes& area) const;

  // Data frames that `agent` sends in one round.
  uint64_t frames_sent(uint32_t tensor, uint64_t round, uint32_t agent) const;

 private:
  std::string check_sum(uint32_t tensor, uint64_t round, const Bytes& area) const;
  std::string check_blocks(uint32_t tensor, uint64_t round, const Bytes& area) const;
  uint64_t all_reduce_frames(const CollectivePlan& plan, uint32_t agent) const;

  const Scenario& scenario_;
};

// target[i] += source[i], and target[i] /= divisor.
void add(DType dtype, const std::byte* source, std::byte* target, size_t bytes);
void divide(DType dtype, std::byte* target, size_t bytes, uint32_t divisor);

}  // namespace gradbus::sim
