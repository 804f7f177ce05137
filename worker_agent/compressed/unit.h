// A piece of a compressed tensor: the codec, the memory and the payloads of its elements, and the
// exchanges that carry them between agents. Three kinds, by communicator:
//
//   gathered  every agent gets every agent's payload and sums what it decodes    (all-gather)
//   owned     one agent gets all payloads, sums them and encodes the sum again   (gather,
//   all-gather) summed    the payloads are dense vectors, added on their way          (all-reduce,
//   1 or 2 rounds)
//
// All agents decode the same bytes in the same order, so all get the same bits.
//
// Engine thread only. The order of calls in a round: start() once the node's sum is in the first
// area, then advance(i) when exchange i has ended, until all have. Allocates at construction only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "compression/memory.h"
#include "compression/registry.h"
#include "worker_agent/exchange.h"

namespace gradbus {

struct UnitPlan {
  CompressionSpec spec;
  Communicator communicator = Communicator::kAllGather;  // not kAuto
  CodecShape shape;
  size_t count = 0;
  uint32_t index = 0;        // of the unit in its tensor
  uint64_t tensor_seed = 0;  // the same on all agents
  uint32_t agent_index = 0;
  uint32_t agents = 2;
  Algorithm algorithm = Algorithm::kRing;  // of an all-reduce
  float scale = 1;                         // of the sum of all agents
  std::vector<float*> areas;               // the unit's first element in each local rank's area
};

class CompressedUnit {
 public:
  virtual ~CompressedUnit() = default;

  // One per exchange, in order; its memory is its blocks, or its vector.
  struct Stage {
    CollectivePlan plan;
    uint64_t stride = 0;  // bytes of a block
    uint64_t bytes = 0;   // of all
  };
  std::span<const Stage> stages() const { return stages_; }
  // Before the first round: the exchange of `stage` and its memory.
  void attach(size_t stage, Exchange* exchange, std::span<std::byte> memory);

  // Encodes the first area. Returns what the first exchange begins with: block lengths by agent
  // (kinds that move blocks).
  virtual std::span<const uint64_t> start(uint64_t round) = 0;
  // Exchange `stage` has ended: decodes or encodes, and returns what the next begins with; after
  // the last the result is in all areas. GB-D611 when a payload is nonsense; names its agent.
  virtual Result<std::span<const uint64_t>> advance(size_t stage) = 0;

 protected:
  explicit CompressedUnit(UnitPlan plan);

  void add_blocks_stage(CollectiveKind kind, uint32_t root, uint64_t block_bytes_max);
  void add_vector_stage(DType dtype, uint64_t elements);
  const UnitPlan& plan() const { return plan_; }
  std::span<std::byte> vector(size_t stage) const;
  std::span<std::byte> own_block(size_t stage) const;
  std::span<const std::byte> block(size_t stage, uint32_t agent) const;
  std::span<const uint64_t> lengths(uint64_t own_bytes);
  std::span<float> first_area() const { return {plan_.areas[0], plan_.count}; }
  // Of everything random: alike on all agents, or this agent's own.
  uint64_t shared_seed(uint64_t round) const;
  uint64_t own_seed(uint64_t round) const;
  // Copies the first area to the others.
  void publish() const;

 private:
  struct Attached {
    Exchange* exchange = nullptr;
    std::span<std::byte> memory;
  };
  const UnitPlan plan_;
  std::vector<Stage> stages_;
  std::vector<Attached> attached_;
  std::vector<uint64_t> lengths_;
};

// The kind that the plan's communicator wants. The caller has checked that the codec can do it.
std::unique_ptr<CompressedUnit> make_unit(UnitPlan plan);

}  // namespace gradbus
