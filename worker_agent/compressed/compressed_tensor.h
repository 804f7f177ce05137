// What a compressed tensor has besides its cell: its units, their exchanges, and the memory that
// payloads lie in.
//
// A round: chunk after chunk of the node's sum is complete; a unit whose last chunk is begins its
// first exchange at once, so units overlap each other's encoding, sending and decoding. Exchange
// u * stages + s carries stage s of unit u.
//
// Engine thread only.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "worker_agent/compressed/unit.h"
#include "worker_agent/engine_command.h"

namespace gradbus {

// An exchange and what its round begins with.
struct ExchangeStart {
  Exchange* exchange = nullptr;  // null: nothing begins
  std::span<const uint64_t> block_bytes;
};

class CompressedTensor {
 public:
  // `areas`: the tensor's first element by local rank. S201 when there is no address space.
  static Result<std::unique_ptr<CompressedTensor>> create(const StartJob& job, const AddTensor& add,
                                                          std::vector<float*> areas,
                                                          Transport& transport);
  ~CompressedTensor();
  CompressedTensor(const CompressedTensor&) = delete;
  CompressedTensor& operator=(const CompressedTensor&) = delete;

  std::span<const std::unique_ptr<Exchange>> exchanges() const { return exchanges_; }

  // ---- a round
  void begin(uint64_t round);
  // The node's sum of the next chunk is complete; they are in order.
  ExchangeStart chunk_reduced();
  // An exchange has ended. GB-D611: a peer sent nonsense.
  Result<ExchangeStart> ended(const Exchange& exchange);
  bool done() const { return units_open_ == 0; }

 private:
  CompressedTensor(const StartJob& job, const AddTensor& add, std::vector<float*> areas,
                   Transport& transport);
  Status open(uint32_t tensor);
  UnitPlan unit_plan(uint32_t index) const;
  ExchangeStart start_of(size_t unit, size_t stage, std::span<const uint64_t> block_bytes) const;

  const StartJob& job_;
  const AddTensor add_;
  const std::vector<float*> areas_;
  Transport& transport_;
  std::span<std::byte> staging_;
  RegionId region_;
  bool registered_ = false;
  std::vector<std::unique_ptr<CompressedUnit>> units_;
  std::vector<std::unique_ptr<Exchange>> exchanges_;
  size_t stages_ = 1;  // of a unit
  uint64_t round_ = 0;
  uint64_t chunks_reduced_ = 0;
  size_t units_open_ = 0;
};

}  // namespace gradbus
