// Blocks that travel once along the ring, chunk by chunk, from the agent of the rank that brings
// them: what broadcast (one block, a chain) and all-gather (a block per rank) share.
//
// A chunk that arrives is delivered at once, which frees its buffer; it is sent on from the
// delivered copy when the successor's credit is there. So a slow successor holds no buffer of ours.
#pragma once

#include <vector>

#include "worker_agent/collectives/ring_collective.h"

namespace gradbus {

class BlockRing : public RingCollective {
 protected:
  // `unit_bytes`: what one unit of a header's `total` stands for.
  BlockRing(const CollectivePlan& plan, RingEdges edges, uint32_t blocks, uint64_t unit_bytes);

  // A round starts with all blocks closed: of unknown length. A block opens with its first frame,
  // or at once if its rank is here.
  void close_all_blocks();
  void open_own_block(uint32_t source, uint64_t bytes, std::vector<Action>& actions);

  // Not by the last agent on the block's way.
  virtual bool forwards(uint32_t source) const = 0;
  // Is `source` one whose block may come here, and may that block have this `total`?
  virtual Status check_block(const FrameHeader& header) const = 0;

  Status check_piece(const FrameHeader& header) const final;
  void accept_frame(const FrameHeader& header, uint32_t buffer, std::vector<Action>& actions) final;
  Action start_send(Piece piece) final;
  void finish_send(const Action& send, std::vector<Action>& actions) final;

 private:
  enum class Stage : uint8_t { kAwaited, kReady, kInFlight, kDone };
  struct Block {
    bool open = false;
    uint64_t bytes = 0;
  };

  void open_block(uint32_t source, uint64_t bytes);
  Stage& stage(Piece piece) { return stages_[size_t{piece.source} * chunks_max_ + piece.chunk]; }
  const Stage& stage(Piece piece) const {
    return stages_[size_t{piece.source} * chunks_max_ + piece.chunk];
  }
  void pass_on(Piece piece, std::vector<Action>& actions);
  void close(Piece piece);
  Action act(Action::Kind kind, Piece piece) const;

  const uint64_t unit_bytes_;
  const uint32_t chunks_max_;  // of one block
  std::vector<Block> blocks_;
  std::vector<Stage> stages_;  // by block, then by chunk
};

}  // namespace gradbus
