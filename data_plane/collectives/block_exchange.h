// The kinds that move blocks. Each block flows from the agent of its source rank along a tree to
// the agents of its target ranks. A block within one node is not sent. All-to-all, gather and
// scatter send directly. Broadcast and all-gather reach every agent along a path, a binomial tree
// or a star.
//
// Every frame of a block contains the block's length. A block of no bytes is one empty frame. The
// length is what the rank has posted (all-gather and gather), the length for the target (all-to-all
// of payloads), or else the whole capacity.
//
// A received chunk is delivered at once, which frees its buffer. It is sent on from the delivered
// copy when the next agents have given credits. So a slow agent occupies no receive buffer here.
#pragma once

#include <vector>

#include "data_plane/collectives/routed_collective.h"
#include "data_plane/collectives/tree.h"

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
  struct Block {  // a block that comes to this agent or leaves it
    uint32_t index = 0;
    bool open = false;  // its length is known from its rank's post or from its first frame
    uint64_t bytes = 0;
    size_t first_chunk = 0;  // index in chunks_
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
  // The unit of a header's `total`: an element for broadcast, else a byte.
  uint64_t unit_bytes() const;

  const uint64_t chunk_bytes_;
  const uint64_t capacity_;    // bytes of a full block
  const uint32_t chunks_max_;  // per block
  std::vector<Block> blocks_;  // by index
  std::vector<Chunk> chunks_;
};

}  // namespace gradbus
