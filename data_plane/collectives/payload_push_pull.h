// The work of an agent for a partition of a compressed tensor that shards aggregate (modes ps:*).
// Its payload goes to the shard of the partition (kReduce frames, the push), and a payload of the
// sum comes back (kGather frames, the pull). The sender chooses a length up to the plan's `count`;
// every frame has it as `total`. Where shards hold parameters, elements are sometimes sent instead,
// in frames with codec kDense. These are pushes of the first round, and answers that the shard
// chooses to send dense.
//
// It needs two blocks of memory, for the push and for the answer, so an answer may arrive before
// the end of a push. It needs no credits, for the reasons in push_pull.h. When the shard is lost,
// the whole push goes to its backup. A partial answer is dropped, because the backup sends it
// again.
#pragma once

#include <vector>

#include "data_plane/collectives/payload_cut.h"
#include "data_plane/collectives/routed_collective.h"

namespace gradbus {

class PayloadPushPull final : public RoutedCollective {
 public:
  static constexpr uint32_t kPushBlock = 0;
  static constexpr uint32_t kAnswerBlock = 1;
  static_assert(kAnswerBlock + 1 == kPayloadBlocks);

  explicit PayloadPushPull(const CollectivePlan& plan);

  void on_peer_lost(uint32_t lost, std::vector<Action>& actions) override;

 protected:
  // `block_bytes` by agent: only that of this agent is used.
  void open_round(std::span<const uint64_t> block_bytes, std::vector<Action>& actions) override;
  Status check_piece(uint32_t from, const FrameHeader& header) const override;
  void accept_frame(uint32_t from, const FrameHeader& header, uint32_t buffer,
                    std::vector<Action>& actions) override;
  Action start_send(Piece piece) override;
  void finish_send(const Action& send, std::vector<Action>& actions) override;

 private:
  // As peers: the partition's shard, and the shard that replaces it after a loss.
  uint32_t first() const { return plan().peer_of_shard(plan().root); }
  uint32_t backup() const { return plan().peer_of_shard(backup_of(plan().root, plan().shards)); }
  uint32_t shard() const { return lost_ ? backup() : first(); }

  PayloadCut push_;
  PayloadCut answer_;
  bool push_dense_ = false;
  bool answer_dense_ = false;
  bool answered_ = false;     // the length of the answer is known
  uint32_t unsent_ = 0;       // frames of the push that the transport has not got yet
  std::vector<bool> posted_;  // by frame of the push: the transport has it
  std::vector<bool> here_;    // by frame of the answer: it has arrived
  bool lost_ = false;         // the partition's shard is lost
};

}  // namespace gradbus
