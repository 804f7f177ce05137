// Payloads that agents push to a shard, each in one frame or several in any order: whose frames are
// here, and where they go. What tensors of payloads have in common (payload_tensor.h,
// coded_parameters.h): a chunk of theirs is a unit.
//
// Engine thread only. Allocates at construction only.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/status.h"
#include "proto/frame.h"
#include "worker_agent/collectives/payload_cut.h"
#include "worker_agent/shard/shard_plan.h"

namespace gradbus {

// The plan as frames of payloads have it, with units for chunks. The other end: shard_stage().
ShardPlan of_payloads(ShardPlan plan);
CodecShape longest_unit(const ShardPlan& plan);

// A sender is an agent, of one unit; it has one payload under way at a time.
class ArrivingPayloads {
 public:
  ArrivingPayloads(size_t senders, uint32_t frames_max)
      : frames_max_(frames_max), senders_(senders), here_(senders * frames_max) {}

  // kCorrupt unless the frame is a part of the payload, `header.total` bytes long, that is not here
  // yet. The caller has checked that so long a one may come.
  Status check(size_t sender, const FrameHeader& header) const;
  // Of a frame that passed: copies it to its place in `to`, if any. True: the payload is whole.
  bool take(size_t sender, const FrameHeader& header, std::span<const std::byte> frame,
            std::byte* to);
  // The payload that is under way will come anew.
  void forget(size_t sender) { senders_[sender].frames = 0; }
  // Of the last payload of which something has come.
  uint64_t bytes(size_t sender) const { return senders_[sender].cut.bytes; }

 private:
  struct Sender {
    PayloadCut cut = {};
    uint32_t frames = 0;  // of it that are here; 0: its length is not known
  };

  const uint32_t frames_max_;
  std::vector<Sender> senders_;
  std::vector<bool> here_;  // by sender and frame
};

}  // namespace gradbus
