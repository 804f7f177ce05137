// All-reduce, reduce and reduce-scatter. Every chunk has an OWNER, which gets the whole sum.
// Partial sums flow to it along a tree (kReduce). For all-reduce the result flows back along
// another tree (kGather). Chunks are independent, so they form a pipeline.
//
//   algorithm          owner of chunk c              sums           results
//   ring               c % agents                    path           path on around the ring
//   chain              the last agent                path 0, 1 ...  back the same path
//   halving-doubling   c % agents                    binomial tree  same tree
//   tree               agent 0                       binomial tree  same tree
//
// For reduce, the root's agent is the owner. For reduce-scatter, the owner of a shard is the agent
// of its rank. Both hold with any algorithm. Ring: Patarasuk and Yuan 2009, "Bandwidth optimal
// all-reduce algorithms". Trees with rotating roots move the same bytes in 2 log2(agents) hops
// (Thakur, Rabenseifner and Gropp 2005, section 4.5, for a power of two; these trees support any
// number of agents).
//
// An agent with the local sum and the partial sums of all its children passes the sum on. Children
// are added in the order of arrival. A fixed order would keep frames of other children in receive
// buffers that the next child may need. So a path has one order of additions and a tree does not.
// In both cases one agent computes the sum and the others copy it, so all ranks get equal bits.
//
// A chunk's memory belongs to the transport between a send and its on_sent(). The result of a chunk
// can come back before that. A kGather frame then stays in its buffer. The sum behind it was
// already received, so this wait needs no other buffer.
#pragma once

#include <vector>

#include "data_plane/collectives/routed_collective.h"
#include "data_plane/collectives/tree.h"

namespace gradbus {

class TreeReduction final : public RoutedCollective {
 public:
  explicit TreeReduction(const CollectivePlan& plan);

  void on_chunk_reduced(uint32_t chunk, std::vector<Action>& actions) override;

 protected:
  void open_round(std::span<const uint64_t> block_bytes, std::vector<Action>& actions) override;
  Status check_piece(uint32_t from, const FrameHeader& header) const override;
  void accept_frame(uint32_t from, const FrameHeader& header, uint32_t buffer,
                    std::vector<Action>& actions) override;
  Action start_send(Piece piece) override;
  void finish_send(const Action& send, std::vector<Action>& actions) override;

 private:
  // In this order. The owner goes from kOpen to kResultReady. An agent that gets no result ends
  // after kPartialInFlight.
  enum class Stage : uint8_t {
    kOpen,  // waits for the local sum and the partial sums of children
    kPartialReady,
    kPartialInFlight,
    kPartialSent,  // waits for the result
    kResultReady,  // sends the result to the next agents
    kDone,
  };
  struct Chunk {
    Stage stage = Stage::kOpen;
    bool reduced = false;       // the local sum is complete
    bool result_seen = false;   // the kGather frame came; kept in `result` during kPartialInFlight
    uint8_t partials_left = 0;  // partial sums of children that are not added yet
    uint8_t sends_left = 0;     // pending sends of the result
    uint32_t result = 0;
  };
  // For each chunk and child: no frame yet, frame done, or the buffer that holds it.
  static constexpr uint32_t kAwaited = UINT32_MAX;
  static constexpr uint32_t kAdded = UINT32_MAX - 1;

  uint32_t owner(uint32_t chunk) const;
  Tree sums(uint32_t chunk) const;
  Tree results(uint32_t chunk) const;
  bool owns(uint32_t chunk) const { return owner(chunk) == me(); }
  bool shares_result() const { return plan().kind == CollectiveKind::kAllReduce; }
  uint32_t& partial(uint32_t chunk, uint32_t child) {
    return partials_[size_t{chunk} * children_max_ + child];
  }
  // The index of `from` among this agent's children; the number of children if it is none.
  uint32_t child_index(uint32_t chunk, uint32_t from) const;

  void count_edges(uint32_t chunk);
  Status check_partial(uint32_t from, const FrameHeader& header) const;
  Status check_result(uint32_t from, const FrameHeader& header) const;
  void take_local(uint32_t chunk, std::vector<Action>& actions);
  void add_partial(uint32_t chunk, uint32_t child, std::vector<Action>& actions);
  void pass_sum(uint32_t chunk, std::vector<Action>& actions);
  void take_result(uint32_t chunk, std::vector<Action>& actions);
  void spread_result(uint32_t chunk, std::vector<Action>& actions);
  void close(uint32_t chunk);
  Action act(Action::Kind kind, uint32_t chunk) const;
  uint64_t bytes_of(uint32_t chunk) const {
    return cut_.range(chunk).elements * dtype_bytes(plan().dtype);
  }

  const ChunkPlan cut_;
  std::vector<Chunk> chunks_;
  uint32_t children_max_ = 1;
  std::vector<uint32_t> partials_;
};

}  // namespace gradbus
