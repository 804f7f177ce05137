// One reliable connection of the device with its completion queue. The transport's thread owns it.
//
// Sends end in the order in which they were posted; so do receives. The completion of a send
// implies that all earlier sends have ended, so only the last send of a batch requests one. An
// error names the first send that did not arrive. No memory is open to remote access.
//
// The destructor ends all outstanding posts. After it the device accesses no posted byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "proto/frame.h"
#include "transport/rdma/device.h"
#include "transport/rdma/hello.h"
#include "transport/rdma/regions.h"

namespace gradbus {

inline constexpr size_t kSendBatchMax = 16;

struct SendPost {
  FrameHeader header;  // sealed when the device gets it
  RegisteredBytes payload;
};

class QueuePair {
 public:
  // Creates room for `posts_max` sends and as many receives. Returns GB-D607 or GB-D606.
  static Result<std::unique_ptr<QueuePair>> create(const RdmaDevice& device, uint32_t posts_max);

  const QueuePairCard& card() const { return card_; }
  // Makes the queue pair ready to receive from and to send to `peer`. GB-D604 names the step that
  // failed. The kernel knows the peer's hardware address because a connection to it is open.
  Status connect(const QueuePairCard& peer, uint32_t peer_timeout_ms);
  // All outstanding posts end. Those not yet completed end as flushed.
  void fail();

  // Whether a payload of this size is copied by the processor into the request itself.
  bool copies(size_t payload_bytes) const {
    return sizeof(FrameHeader) + payload_bytes <= inline_bytes_max_;
  }
  // Gives the device at most kSendBatchMax frames with one doorbell and returns how many it took.
  // If that is less than requested, the queue pair is broken and errno has the reason. Sends are
  // numbered from 0.
  size_t post_sends(std::span<const SendPost> batch);
  // Returns false when the queue pair is broken.
  bool post_receive(const RegisteredBytes& slot);

  // Returns completed work; see send_number() and is_receive().
  std::span<const ibv_wc> poll(std::span<ibv_wc> ended);
  static bool is_receive(const ibv_wc& work) { return (work.wr_id & 1) != 0; }
  static uint64_t send_number(const ibv_wc& work) { return work.wr_id >> 1; }

  // Requests a notice for the next completion. Returns false if one was already requested. After
  // true, call poll() once more: work that completed before may have caused no notice.
  bool arm();
  void on_completion_event() { armed_ = false; }

 private:
  QueuePair(const RdmaDevice& device, uint32_t posts_max);
  Status open(uint32_t posts_max);
  int become_initialised();
  int become_receiver(const QueuePairCard& peer);
  int become_sender(uint32_t peer_timeout_ms);
  void fill(const SendPost& post, ibv_send_wr& request, ibv_sge* parts);

  const RdmaDevice& device_;
  QueuePairCard card_;
  uint32_t inline_bytes_max_ = 0;
  uint64_t sends_ = 0;
  uint64_t receives_ = 0;
  bool armed_ = false;
  std::vector<FrameHeader> headers_;  // indexed by send number modulo their count
  // The order matters: the queue pair is destroyed first.
  Verbs<ibv_mr> headers_registration_;
  Verbs<ibv_cq> queue_;
  Verbs<ibv_qp> pair_;
};

}  // namespace gradbus
