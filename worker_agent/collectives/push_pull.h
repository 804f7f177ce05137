// What an agent does for a tensor that shards aggregate (modes ps:*): each chunk of the node's sum
// goes to the shard that holds it (kReduce, the push), and what that shard answers (kGather, the
// pull) is the result. Each chunk is on its own: an answer may come while others are not yet
// pushed.
//
// No credits either way: a shard takes every push at once (shard/shard_tensor.h), and an answer
// only comes for a round that has begun here.
//
// A chunk's memory belongs to the transport between a push and its on_sent. The answer can come
// before that; then it stays in its buffer until the push ends.
//
// With two replicas a chunk whose shard is lost goes to its backup. What was pushed is still in the
// chunk's memory until the answer is delivered, so it can be pushed again; the backup knows by the
// round's number whether it has taken it (shard/shard_tensor.h). A tensor that is on one shard is
// pushed again as a whole, also what was answered: parts of two answers would not be of one step. A
// chunk that was answered has the answer where its push was, which the backup will not read: it
// has taken that push.
#pragma once

#include <vector>

#include "worker_agent/collectives/routed_collective.h"

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
    kAnswered,  // which came while kPushing: held in `answer`
    kDone,
  };
  struct Chunk {
    Stage stage = Stage::kOpen;
    uint32_t answer = 0;  // buffer
  };

  uint32_t shard(uint32_t chunk) const;  // as a peer: where the chunk goes
  void push(uint32_t chunk, std::vector<Action>& actions);
  void forget_answers(std::vector<Action>& actions);
  uint64_t bytes_of(uint32_t chunk) const;
  void take_answer(uint32_t chunk, uint32_t buffer, std::vector<Action>& actions);

  const ChunkPlan cut_;
  std::vector<Chunk> chunks_;
  std::vector<bool> lost_;  // by shard
};

}  // namespace gradbus
