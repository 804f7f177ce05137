// The work of an agent for a tensor that shards aggregate (modes ps:*). Each chunk of the node's
// sum goes to the shard that holds it (kReduce, the push). The shard's answer (kGather, the pull)
// is the result. Chunks are independent: an answer may arrive while other chunks are not yet
// pushed.
//
// No credits are needed in either direction. A shard applies every push at once
// (server/parameter_server/shard_tensor.h), and an answer only comes for a round that has begun
// here.
//
// A chunk's memory belongs to the transport between a push and its on_sent(). If the answer arrives
// before, it stays in its buffer until the push ends.
//
// With two replicas, a chunk whose shard is lost goes to its backup. The pushed data stays in the
// chunk's memory until the answer is delivered, so it can be pushed again. The backup knows from
// the round number whether it has applied the push (server/parameter_server/shard_tensor.h). A
// tensor that is on one shard is pushed again as a whole, including answered chunks, because parts
// of two answers could belong to different steps. An answered chunk contains the answer instead of
// the push. The backup will not read it, because it has already applied that push.
#pragma once

#include <vector>

#include "data_plane/collectives/routed_collective.h"

namespace gradbus {

class PushPull final : public RoutedCollective {
 public:
  explicit PushPull(const CollectivePlan& plan);

  void on_chunk_reduced(uint32_t chunk, std::vector<Action>& actions) override;
  void on_peer_lost(uint32_t lost, std::vector<Action>& actions) override;

 protected:
  void open_round(std::span<const uint64_t> block_bytes, std::vector<Action>& actions) override;
  Status check_piece(uint32_t from, const FrameHeader& header) const override;
  void accept_frame(uint32_t from, const FrameHeader& header, uint32_t buffer,
                    std::vector<Action>& actions) override;
  Action start_send(Piece piece) override;
  void finish_send(const Action& send, std::vector<Action>& actions) override;

 private:
  enum class Stage : uint8_t {
    kOpen,  // waits for the node's sum
    kPushReady,
    kPushing,
    kPushed,    // waits for the answer
    kAnswered,  // the answer came during kPushing and is in `answer`
    kDone,
  };
  struct Chunk {
    Stage stage = Stage::kOpen;
    uint32_t answer = 0;  // receive buffer
  };

  uint32_t shard(uint32_t chunk) const;  // as a peer: the shard of the chunk
  void push(uint32_t chunk, std::vector<Action>& actions);
  void forget_answers(std::vector<Action>& actions);
  uint64_t bytes_of(uint32_t chunk) const;
  void take_answer(uint32_t chunk, uint32_t buffer, std::vector<Action>& actions);

  const ChunkPlan cut_;
  std::vector<Chunk> chunks_;
  std::vector<bool> lost_;  // by shard
};

}  // namespace gradbus
