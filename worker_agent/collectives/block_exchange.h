// The kinds that move blocks: each block flows from the agent of the rank that brings it along a
// tree to the agents of the ranks that get it. A block that begins and ends on one node does not
// travel. All-to-all, gather and scatter send directly; broadcast and all-gather reach every agent,
// along a path, a binomial tree or a star.
//
// A block's length is in every frame of it; a block of no bytes is one empty frame. All-gather and
// gather: the length that its rank has posted; all-to-all of payloads: the length for its target;
// the others: the whole capacity.
//
// A chunk that arrives is delivered at once, which frees its buffer; it is sent on from the
// delivered copy when the next agents' credits are there. So a slow one holds no buffer of ours.
#pragma once

#include <vector>

#include "worker_agent/collectives/routed_collective.h"
#include "worker_agent/collectives/tree.h"

namespace gradbus {

class BlockExchange final : public RoutedCollective {
 public:
  explicit BlockExchange(const CollectivePlan& plan);

 protected:
  void open_round(std::span<const uint64_t> block_bytes, std::vector<Action>& actions) override;
  Status check_piece(uint32_t from, const FrameHeader& header) const override;
  void accept_frame(uint32_t from, const FrameHeader& header, uint32_t buffer,
                    std::vector<Action>& actions) override;
  Action start_send(Piece piece) override;
  void finish_send(const Action& send, std::vector<Action>& actions) override;

 private:
  struct Block {  // one that comes to this agent or leaves it
    uint32_t index = 0;
    bool open = false;  // its length is known: from its rank's post, or from its first frame
    uint64_t bytes = 0;
    size_t first_chunk = 0;  // in chunks_
  };
  struct Chunk {
    bool here = false;
    uint32_t sends_left = 0;
  };

  void add_blocks();
  void add_block(uint32_t index);
  Tree way(uint32_t index) const;
  uint32_t source_rank(uint32_t index) const;
  bool is_own(uint32_t index) const { return way(index).root == me(); }
  bool has_lengths() const;
  uint64_t own_length(uint32_t index, std::span<const uint64_t> block_bytes) const;
  Block* find(uint32_t index);
  const Block* find(uint32_t index) const;
  void open_block(Block& block, uint64_t bytes);
  void pass_on(Block& block, uint32_t chunk, std::vector<Action>& actions);
  Status check_block(const FrameHeader& header) const;
  Action act(Action::Kind kind, const Block& block, uint32_t chunk) const;
  uint32_t chunks_of(uint64_t bytes) const;
  uint64_t bytes_of(uint64_t block_bytes, uint32_t chunk) const;
  // What one unit of a header's `total` stands for: elements for broadcast, else bytes.
  uint64_t unit_bytes() const;

  const uint64_t chunk_bytes_;
  const uint64_t capacity_;    // bytes of a full block
  const uint32_t chunks_max_;  // of one block
  std::vector<Block> blocks_;  // by index
  std::vector<Chunk> chunks_;
};

}  // namespace gradbus
