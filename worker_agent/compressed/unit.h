// A piece of a compressed tensor: the codec, the memory and the payloads of its elements, and the
// exchanges that carry them between agents. Six kinds, by communicator, mode and codec:
//
//   allgather  gathered  every agent gets every agent's payload and sums what it decodes
//                        (all-gather)
//   ps         owned     one agent gets all payloads, sums them and encodes the sum again
//                        (gather, all-gather)
//   ps         pushed    mode ps:sync: the same by a parameter-server shard, which keeps what its
//                        encoding leaves out (one exchange with it)
//   ps         held      modes ps:async, ps:ssp, ps:quorum: a shard steps with the payload on
//                        parameters that it holds, and says what they differ in from what this
//                        agent has of them (one exchange with it)
//   allreduce  summed    linear codecs: the payloads are dense vectors, added on their way
//                        (all-reduce, 1 or 2 rounds)
//   allreduce  merged    codecs that select: each agent merges the entries of a range of elements
//                        (all-to-all, all-gather)
//
// Of elements on a GPU there are gathered, owned and summed ones (device_unit.cc).
//
// All agents decode the same bytes in the same order, so all get the same bits.
//
// Engine thread only. The order of calls in a round: start() once the node's sum is in the first
// area, then advance(i) when exchange i has ended, until all have. Allocates at construction, and
// in write_memory().
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "compression/memory.h"
#include "proto/shm_layout.h"
#include "worker_agent/compressed/unit_plan.h"
#include "worker_agent/exchange.h"

namespace gradbus {

class CompressedUnit {
 public:
  virtual ~CompressedUnit() = default;

  // One per exchange, in order.
  std::span<const Stage> stages() const { return stages_; }
  // Before the first round: the exchange of `stage` and its memory.
  void attach(size_t stage, Exchange* exchange, std::span<std::byte> memory);

  // Before start(), when the round begins: of elements on a GPU all work that start() is to follow.
  // `exchanges`: it will.
  virtual Status prepare(uint64_t /*round*/, bool /*exchanges*/) { return {}; }
  // Encodes the first area. Returns what the first exchange begins with: block lengths by agent
  // (kinds that move blocks). Where shards hold parameters the ranks may bring no gradient but
  // `pull`: want the parameters, or read or write something else that shards keep.
  std::span<const uint64_t> start(uint64_t round, PullKind pull = PullKind::kNone);
  // Exchange `stage` has ended: decodes or encodes, and returns what the next begins with; after
  // the last the result is in all areas. GB-D611 when a payload is nonsense; names its agent.
  virtual Result<std::span<const uint64_t>> advance(size_t stage) = 0;
  // A GPU makes what the next exchange is to carry: advance() has returned nothing, and resume()
  // will return it. While it is not there the unit goes on waiting.
  bool waits() const { return waits_; }
  virtual Result<std::span<const uint64_t>> resume() { return std::span<const uint64_t>(); }

  // ---- between rounds: what this agent remembers, in one area for all parts
  // Into the first area; the others, whose sum with it counts, become 0. What there is none of: 0.
  virtual Status read_memory(MemoryPart part);
  // From the first area, which holds the sum of the areas. Without a residual the values go into
  // the next round's sum, so nothing is lost; without a momentum they are dropped.
  virtual Status write_memory(MemoryPart part);
  virtual Status scale_memory(float factor);
  double residual_norm();
  // What `from`, of the same tensor, remembers of these elements of it.
  void take_memory(CompressedUnit& from, uint64_t first, uint64_t here, uint64_t elements);
  uint64_t elements() const { return plan_.count; }

 protected:
  explicit CompressedUnit(UnitPlan plan);

  // As start().
  virtual std::span<const uint64_t> encode(uint64_t round) = 0;
  // Of a codec that remembers something itself.
  virtual std::span<float> codec_momentum() { return {}; }
  // What an owner's second encoding has left out, on the agent that owns the unit.
  virtual std::span<float> owner_residual() { return {}; }
  Memory& memory() { return memory_; }
  PullKind pull() const { return pull_; }
  void set_waits(bool waits) { waits_ = waits; }

  void add_stage(Stage stage);
  const UnitPlan& plan() const { return plan_; }
  std::span<std::byte> vector(size_t stage) const;
  std::span<std::byte> own_block(size_t stage) const;
  std::span<const std::byte> block(size_t stage, uint32_t agent) const;
  std::span<const uint64_t> lengths(uint64_t own_bytes);
  // All-to-all: block from * agents + to. What this agent sends to agent `to` has a length.
  std::span<std::byte> block_memory(size_t stage, uint32_t index) const;
  std::span<const std::byte> received(size_t stage, uint32_t index, uint32_t from) const;
  bool came_dense(size_t stage) const { return attached_[stage].exchange->came_dense(); }
  void set_length(uint32_t to, uint64_t bytes) { lengths_[to] = bytes; }
  std::span<const uint64_t> all_lengths() const { return lengths_; }
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
  std::span<float> part(MemoryPart part);

  const UnitPlan plan_;
  Memory memory_;
  PullKind pull_ = PullKind::kNone;
  bool waits_ = false;
  std::vector<float> carried_;  // written without a memory to keep it
  std::vector<Stage> stages_;
  std::vector<Attached> attached_;
  std::vector<uint64_t> lengths_;
};

// The kind that the plan's communicator wants. The caller has checked that the codec can do it.
std::unique_ptr<CompressedUnit> make_unit(UnitPlan plan);

}  // namespace gradbus
