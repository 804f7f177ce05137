// Inputs of a simulated job and the results they must give, by the plain formulas: element by
// element over all ranks, without chunks, agents or trees. Also the arithmetic that actions ask
// for.
//
// Integers must be exact. A float sum must lie within the rounding error of any order of additions;
// that all agents got the same bits is compared by the simulation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/scenario.h"

namespace gradbus::sim {

using Bytes = std::vector<std::byte>;

class Oracle {
 public:
  explicit Oracle(const Scenario& scenario) : scenario_(scenario) {}

  // Kinds that reduce: what `index`, a rank, brings to `round`. The others: block `index`, of
  // block_bytes().
  Bytes input(uint32_t tensor, uint64_t round, uint32_t index) const;
  // All-gather and gather: 0 to count elements, different by rank and round. Else all of them.
  uint64_t block_bytes(uint32_t tensor, uint64_t round, uint32_t index) const;

  // "" or what is wrong with elements [first, first + part.size()) of the reduced tensor.
  std::string check_sum(uint32_t tensor, uint64_t round, uint64_t first, const Bytes& part) const;
  std::string check_block(uint32_t tensor, uint64_t round, uint32_t index,
                          const Bytes& block) const;

  // Data frames of one round, all agents together; and of one agent in a ring all-reduce.
  uint64_t frames(uint32_t tensor, uint64_t round) const;
  uint64_t ring_frames(uint32_t tensor, uint32_t agent) const;

 private:
  uint64_t block_frames(uint32_t tensor, uint64_t round) const;

  const Scenario& scenario_;
};

// The rank that brings block `index`; the ranks that get it: one, or everybody.
uint32_t source_rank(const CollectivePlan& plan, uint32_t index);
bool gets_block(const CollectivePlan& plan, uint32_t rank, uint32_t index);

// target[i] = op(first[i], second[i]), and target[i] /= divisor.
void combine(const CollectivePlan& plan, const std::byte* first, const std::byte* second,
             std::byte* target, size_t bytes);
void divide(DType dtype, std::byte* target, size_t bytes, uint32_t divisor);

}  // namespace gradbus::sim
