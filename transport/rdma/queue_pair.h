// One reliable connection of the device with its completion queue. The transport's thread owns it.
//
// Sends end in the order they were posted, and so do receives. A send that ended tells the end of
// all sends before it, so only the last of a batch asks for a completion; an error names the first
// that did not arrive. No memory is open to remote access.
//
// Destroying it ends what is still outstanding: from then on the device touches no posted byte.
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
  FrameHeader header;  // sealed when it is handed to the device
  RegisteredBytes payload;
};

class QueuePair {
 public:
  // Room for `posts_max` sends and as many receives. GB-D607, GB-D606.
  static Result<std::unique_ptr<QueuePair>> create(const RdmaDevice& device, uint32_t posts_max);

  const QueuePairCard& card() const { return card_; }
  // Ready to receive from and to send to `peer`. GB-D604 names the step that failed. The kernel
  // looks up the peer's hardware address: it knows it, since a connection to the peer is open.
  Status connect(const QueuePairCard& peer, uint32_t peer_timeout_ms);
  // Everything outstanding ends, as flushed unless it was done before.
  void fail();

  // Whether a payload of so many bytes travels in the request itself, copied by the processor.
  bool copies(size_t payload_bytes) const {
    return sizeof(FrameHeader) + payload_bytes <= inline_bytes_max_;
  }
  // Hands the device at most kSendBatchMax frames by one doorbell; how many it took. Fewer than
  // given: it is broken, errno says why. They are numbered on from 0.
  size_t post_sends(std::span<const SendPost> batch);
  // False when it is broken.
  bool post_receive(const RegisteredBytes& slot);

  // What has ended; see send_number() and is_receive().
  std::span<const ibv_wc> poll(std::span<ibv_wc> ended);
  static bool is_receive(const ibv_wc& work) { return (work.wr_id & 1) != 0; }
  static uint64_t send_number(const ibv_wc& work) { return work.wr_id >> 1; }

  // Asks for a notice when the next work ends. False: that was asked already. True: what ended
  // before may have given none, so poll once more.
  bool arm();
  void notice_came() { armed_ = false; }

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
  std::vector<FrameHeader> headers_;  // by send number modulo their count
  // In this order: the queue pair is destroyed first.
  Verbs<ibv_mr> headers_registration_;
  Verbs<ibv_cq> queue_;
  Verbs<ibv_qp> pair_;
};

}  // namespace gradbus
