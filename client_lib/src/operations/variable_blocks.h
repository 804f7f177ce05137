// What all-gather, gather and all-to-all share: blocks whose lengths the other ranks do not know.
//
// First the lengths, by an all-gather; then the blocks, through a tensor whose capacity, a power of
// two, all ranks derive from the longest block. So growing inputs register a handful of tensors,
// not one a call. A tensor has kTensorBytes at most: longer blocks go piece by piece, a round each.
// When all blocks are empty the lengths are all there is.
#pragma once

#include "client_lib/src/operations/kinds.h"

namespace gradbus {

class VariableBlocks : public StagedOperation {
 protected:
  // `own_lengths`: elements of each block that this rank brings; as many entries on every rank.
  VariableBlocks(Session& session, const OperationRequest& request,
                 std::vector<uint64_t> own_lengths);

  // The input's piece of this round into this rank's blocks of the tensor; returns its bytes.
  virtual uint64_t write_blocks() = 0;
  // What this rank gets from `rank`: the block, and its place among that rank's lengths.
  virtual const std::byte* block_from(uint32_t rank) = 0;
  virtual uint64_t index_here() = 0;
  virtual bool receives() { return true; }

  const std::vector<uint64_t>& own_lengths() const { return own_lengths_; }
  // What this round carries of a block of `length` elements.
  struct Piece {
    uint64_t first;  // element of the block
    uint64_t elements;
  };
  Piece piece(uint64_t length) const;

  bool ready_to_write() final { return tensor().writable(); }
  uint64_t copy_in() final;
  void copy_out() final;
  bool same_tensor_again() final;
  bool last_round(Status& status) final;
  bool needs_input_later() const final { return true; }

 private:
  static TensorSpec lengths_spec(const TensorSpec& asked, uint64_t lengths);
  Result<TensorSpec> blocks_spec() const;
  void read_lengths();
  void read_blocks();

  const TensorSpec asked_;
  const std::vector<uint64_t> own_lengths_;
  uint64_t longest_ = 0;  // of all blocks of all ranks
  uint64_t done_ = 0;     // elements of the longest block before this round
  bool blocks_ = false;   // after the lengths
  std::byte* output_at_ = nullptr;
};

}  // namespace gradbus
