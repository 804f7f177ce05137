// What an agent does for a unit of a compressed tensor that shards aggregate (modes ps:*): its
// payload goes to the one shard that holds the unit (kReduce frames, the push), and a payload of
// the sum comes back (kGather frames, the pull). Lengths are the sender's choice, up to the plan's
// `count`, and stand in every frame as its `total`. Where shards hold parameters elements travel
// instead now and then, and frames say so (codec kDense): pushes of the first round, and whatever
// answer the shard likes to make so.
//
// Its memory is two blocks, what is pushed and what comes back, so an answer need not wait for the
// end of a push. No credits, for the reasons in push_pull.h. When the shard is lost all of the push
// goes to its backup, and what was there of an answer is forgotten: it comes once more.
#pragma once

#include <vector>

#include "worker_agent/collectives/payload_cut.h"
#include "worker_agent/collectives/routed_collective.h"

namespace gradbus {

class PayloadPushPull final : public RoutedCollective {
 public:
  static constexpr uint32_t kPushBlock = 0;
  static constexpr uint32_t kAnswerBlock = 1;
  static_assert(kAnswerBlock + 1 == kPayloadBlocks);

  explicit PayloadPushPull(const CollectivePlan& plan);

  void on_peer_lost(uint32_t lost, std::vector<Action>& actions) override;

 protected:
  // `block_bytes` by agent: this one's counts.
  void open_round(std::span<const uint64_t> block_bytes, std::vector<Action>& actions) override;
  Status check_piece(uint32_t from, const FrameHeader& header) const override;
  void accept_frame(uint32_t from, const FrameHeader& header, uint32_t buffer,
                    std::vector<Action>& actions) override;
  Action start_send(Piece piece) override;
  void finish_send(const Action& send, std::vector<Action>& actions) override;

 private:
  // Peers: the unit's shard, and who has that part now.
  uint32_t first() const { return plan().peer_of_shard(plan().root); }
  uint32_t backup() const { return plan().peer_of_shard(backup_of(plan().root, plan().shards)); }
  uint32_t shard() const { return lost_ ? backup() : first(); }

  PayloadCut push_;
  PayloadCut answer_;
  bool push_dense_ = false;
  bool answer_dense_ = false;
  bool answered_ = false;     // the length of the answer is known
  uint32_t unsent_ = 0;       // frames of the push that the transport was not given yet
  std::vector<bool> posted_;  // by frame of the push: the transport's
  std::vector<bool> here_;    // by frame of the answer
  bool lost_ = false;         // the unit's shard
};

}  // namespace gradbus
