// What a compressed tensor has besides its cell: its units, their exchanges, and the memory that
// payloads lie in.
//
// A round: chunk after chunk of the node's sum is complete; a unit whose last chunk is begins its
// first exchange at once, so units overlap each other's encoding, sending and decoding. Exchange
// u * stages + s carries stage s of unit u; one more carries the fidelity gauge's vector.
//
// Rounds in which ranks read or write memories exchange nothing and are not counted by exchanges,
// so agents need not have as many.
//
// Engine thread only.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "proto/frame.h"
#include "worker_agent/compressed/fidelity.h"
#include "worker_agent/compressed/unit.h"
#include "worker_agent/engine_command.h"
#include "worker_agent/staging_memory.h"

namespace gradbus {

// An exchange and what its round begins with.
struct ExchangeStart {
  Exchange* exchange = nullptr;  // null: nothing begins
  uint64_t round = 0;
  std::span<const uint64_t> block_bytes = {};
};
using ExchangeStarts = std::array<ExchangeStart, 2>;  // a unit's, the gauge's

// What the ranks of a node ask of a round.
struct RoundRequest {
  SubmissionKind kind = SubmissionKind::kPosted;
  MemoryPart part = MemoryPart::kResidual;  // kReadMemory, kWriteMemory
  float memory_scale = 1;                   // kPosted
  float learning_rate = 0;                  // kPosted
  bool pull_only = false;                   // kPosted
  uint32_t pull_source = kPullOnly;         // pull_only: what a push to a shard says of it

  bool operator==(const RoundRequest&) const = default;
};

class CompressedTensor {
 public:
  // `areas`: the tensor's first element by local rank; none: they are on GPUs (add.device_units).
  // S201 when there is no address space.
  static Result<std::unique_ptr<CompressedTensor>> create(const StartJob& job, const AddTensor& add,
                                                          std::vector<float*> areas,
                                                          Transport& transport);
  ~CompressedTensor();
  CompressedTensor(const CompressedTensor&) = delete;
  CompressedTensor& operator=(const CompressedTensor&) = delete;

  std::span<const std::unique_ptr<Exchange>> exchanges() const { return exchanges_; }

  // Before the first round: what the units of the one whose place it takes remember, element by
  // element.
  void take_memory(CompressedTensor& from);

  // ---- a round
  // GB-D624: a GPU takes no work.
  Status begin(const RoundRequest& request);
  // The node's sum of the next chunk is complete; they are in order. Returns what begins. O901: the
  // gate (nan=stop) has found a number that is not finite.
  Result<ExchangeStarts> chunk_reduced();
  // An exchange has ended. GB-D611: a peer sent nonsense.
  Result<ExchangeStarts> ended(const Exchange& exchange);
  // A GPU works on what exchanges are to carry. It rings the engine; then one of them may begin.
  bool waits() const { return !waiting_.empty(); }
  Result<ExchangeStarts> resume();
  bool done() const { return open_ == 0; }
  // What the round that is done has measured, if it has.
  const FidelitySample* fidelity() const { return measured_ ? &sample_ : nullptr; }

 private:
  CompressedTensor(const StartJob& job, const AddTensor& add, std::vector<float*> areas,
                   Transport& transport);
  Status open(uint32_t tensor);
  void open_exchange(uint32_t tensor, const Stage& stage, std::span<std::byte> memory);
  uint64_t staging_bytes() const;
  UnitPlan unit_plan(uint32_t index) const;
  std::span<float> first_area(size_t unit) const;
  ExchangeStarts start(size_t unit);
  ExchangeStarts start(size_t unit, size_t stage, std::span<const uint64_t> block_bytes) const;
  Status refuse_not_finite(size_t unit) const;
  Status take_turn_with_memory();
  void measure();

  const StartJob& job_;
  const AddTensor add_;
  const std::vector<float*> areas_;
  const bool refuses_not_finite_;
  StagingMemory staging_;
  std::vector<std::unique_ptr<CompressedUnit>> units_;
  std::unique_ptr<FidelityGauge> gauge_;  // null: none was asked for
  std::vector<std::unique_ptr<Exchange>> exchanges_;
  size_t stages_ = 1;  // of a unit

  RoundRequest request_;
  uint64_t round_ = 0;  // that were exchanged
  uint64_t chunks_reduced_ = 0;
  struct Waiting {
    size_t unit;
    size_t stage;  // that it will begin
  };
  std::vector<Waiting> waiting_;
  size_t open_ = 0;  // units, and the gauge, that are not done with the round
  size_t measured_unit_ = 0;
  bool measured_ = false;
  FidelitySample sample_;
};

}  // namespace gradbus
