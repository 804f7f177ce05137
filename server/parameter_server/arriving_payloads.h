// Payloads that agents push to a shard, each in one or several frames in any order. This class
// knows which frames have arrived and where they go. It is shared by the tensors of payloads
// (payload_tensor.h, coded_parameters.h), whose chunks are partitions.
//
// Engine thread only. Allocates at construction only.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/status.h"
#include "data_plane/collectives/payload_cut.h"
#include "proto/frame.h"
#include "server/parameter_server/shard_plan.h"

namespace gradbus {

// The plan in the form of payload frames, with partitions as chunks. shard_stage() makes the other
// end.
ShardPlan of_payloads(ShardPlan plan);
CodecShape longest_partition(const ShardPlan& plan);

// A sender is one agent for one partition. It sends one payload at a time.
class ArrivingPayloads {
 public:
  ArrivingPayloads(size_t senders, uint32_t frames_max)
      : frames_max_(frames_max), senders_(senders), here_(senders * frames_max) {}

  // Returns kCorrupt unless the frame is a missing part of the payload, which has `header.total`
  // bytes. The caller has checked that this length is allowed.
  Status check(size_t sender, const FrameHeader& header) const;
  // For a frame that passed check(): copies it to its place in `to`, if any. Returns true when the
  // payload is complete.
  bool take(size_t sender, const FrameHeader& header, std::span<const std::byte> frame,
            std::byte* to);
  // The current payload will be sent again from its start.
  void forget(size_t sender) { senders_[sender].frames = 0; }
  // The length of the latest payload of which a frame has arrived.
  uint64_t bytes(size_t sender) const { return senders_[sender].cut.bytes; }

 private:
  struct Sender {
    PayloadCut cut = {};
    uint32_t frames = 0;  // frames that have arrived; 0: the length is unknown
  };

  const uint32_t frames_max_;
  std::vector<Sender> senders_;
  std::vector<bool> here_;  // by sender and frame
};

}  // namespace gradbus
