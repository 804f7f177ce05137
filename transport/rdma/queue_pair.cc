#include "transport/rdma/queue_pair.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "common/errors.h"

namespace gradbus {
namespace {

// A header and one cache line of payload. Credits and probes travel in the request itself, which
// saves the device one read over the bus.
constexpr uint32_t kInlineBytes = 128;
constexpr uint32_t kNumberMask = (1u << 24) - 1;
constexpr uint8_t kHopLimit = 64;
// The field allows 7, but soft-RoCE never counts a 7 down. It would resend lost packets without
// end, and a peer that only waits would never learn about the loss.
constexpr uint8_t kRetries = 6;
constexpr uint8_t kRetriesForever = 7;  // for sends whose receiver has not posted a receive
// A refused send is tried again after 0.32 ms. A send is refused when all slots of the peer are
// full. The peer then has more work than 0.32 ms, so the timer delays nothing.
constexpr uint8_t kReceiverNotReadyTimer = 10;
constexpr uint8_t kAckTimeoutMax = 21;

// The device's timeout is 4.096 us * 2^n. This is the largest n for which the first try and all
// retries fit into the peer's timeout.
uint8_t ack_timeout(uint32_t peer_timeout_ms) {
  const double share_us = peer_timeout_ms * 1000.0 / (kRetries + 1);
  uint8_t step = 1;
  while (step < kAckTimeoutMax &&
         4.096 * static_cast<double>(uint64_t{1} << (step + 1)) <= share_us)
    ++step;
  return step;
}

uint32_t random_psn() {
  uint32_t number = 0;
  (void)!getrandom(&number, sizeof(number), GRND_NONBLOCK);
  return number & kNumberMask;
}

}  // namespace

QueuePair::QueuePair(const RdmaDevice& device, uint32_t posts_max)
    : device_(device),
      headers_(std::bit_ceil(posts_max)),
      headers_registration_(nullptr, device.verbs().dereg_mr),
      queue_(nullptr, device.verbs().destroy_cq),
      pair_(nullptr, device.verbs().destroy_qp) {}

Result<std::unique_ptr<QueuePair>> QueuePair::create(const RdmaDevice& device, uint32_t posts_max) {
  std::unique_ptr<QueuePair> pair(new QueuePair(device, posts_max));
  GRADBUS_RETURN_IF_ERROR(pair->open(posts_max));
  return pair;
}

Status QueuePair::open(uint32_t posts_max) {
  Result<Verbs<ibv_mr>> registration =
      device_.register_memory(std::as_writable_bytes(std::span(headers_)));
  GRADBUS_RETURN_IF_ERROR(registration.status());
  headers_registration_ = registration.take();
  const auto broken = [&](const char* what) {
    return error("D607", std::string("cannot make a ") + what + " for " +
                             std::to_string(posts_max) + " posts on " + device_.place().device +
                             ": " + std::strerror(errno));
  };
  const VerbsLibrary& verbs = device_.verbs();
  queue_.reset(verbs.create_cq(device_.context(), static_cast<int>(2 * posts_max), this,
                               device_.channel(), 0));
  if (queue_ == nullptr) return broken("completion queue");
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = queue_.get();
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap = {posts_max, posts_max, 2, 1, kInlineBytes};
  pair_.reset(verbs.create_qp(device_.domain(), &wanted));
  if (pair_ == nullptr) {  // some devices support no inline data and refuse it
    wanted.cap = {posts_max, posts_max, 2, 1, 0};
    pair_.reset(verbs.create_qp(device_.domain(), &wanted));
  }
  if (pair_ == nullptr) return broken("queue pair");
  inline_bytes_max_ = wanted.cap.max_inline_data;
  const RdmaPlace& place = device_.place();
  card_ = {pair_->qp_num,
           random_psn(),
           place.lid,
           static_cast<uint8_t>(place.mtu),
           place.ethernet,
           0,
           {}};
  std::memcpy(card_.gid.data(), place.gid.gid.raw, card_.gid.size());
  const int failure = become_initialised();
  if (failure == 0) return {};
  errno = failure;
  return broken("usable queue pair");
}

int QueuePair::become_initialised() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = device_.place().port;
  attributes.qp_access_flags = 0;
  return device_.verbs().modify_qp(
      pair_.get(), &attributes,
      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int QueuePair::become_receiver(const QueuePairCard& peer) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(std::min(card_.mtu, peer.mtu));
  attributes.dest_qp_num = peer.queue_pair;
  attributes.rq_psn = peer.first_psn;
  attributes.min_rnr_timer = kReceiverNotReadyTimer;
  ibv_ah_attr& route = attributes.ah_attr;
  route.port_num = device_.place().port;
  route.dlid = peer.lid;
  route.is_global = peer.ethernet;
  std::memcpy(route.grh.dgid.raw, peer.gid.data(), peer.gid.size());
  route.grh.sgid_index = static_cast<uint8_t>(device_.place().gid.gid_index);
  route.grh.hop_limit = kHopLimit;
  return device_.verbs().modify_qp(pair_.get(), &attributes,
                                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                       IBV_QP_MIN_RNR_TIMER);
}

int QueuePair::become_sender(uint32_t peer_timeout_ms) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = ack_timeout(peer_timeout_ms);
  attributes.retry_cnt = kRetries;
  attributes.rnr_retry = kRetriesForever;
  attributes.sq_psn = card_.first_psn;
  return device_.verbs().modify_qp(pair_.get(), &attributes,
                                   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

Status QueuePair::connect(const QueuePairCard& peer, uint32_t peer_timeout_ms) {
  if (peer.ethernet != card_.ethernet)
    return error("D604", "cannot connect: one side is InfiniBand, the other RoCE");
  const char* step = "reach the peer's GID";
  int failure = become_receiver(peer);
  if (failure == 0) {
    step = "send";
    failure = become_sender(peer_timeout_ms);
  }
  if (failure == 0) return {};
  return error("D604",
               "the queue pair on " + describe(device_.place()) + " cannot " + step + ": " +
                   std::strerror(failure),
               "check that both agents listen on addresses of one RDMA network: gradbus doctor");
}

void QueuePair::fail() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  // If the device refuses even this, destroying the queue pair ends the posts.
  (void)device_.verbs().modify_qp(pair_.get(), &attributes, IBV_QP_STATE);
}

void QueuePair::fill(const SendPost& post, ibv_send_wr& request, ibv_sge* parts) {
  FrameHeader& header = headers_[sends_ & (headers_.size() - 1)];
  const std::span<const std::byte> payload = post.payload.bytes;
  header = post.header;
  seal_frame(header, payload);
  parts[0] = {reinterpret_cast<uintptr_t>(&header), sizeof(header), headers_registration_->lkey};
  parts[1] = {reinterpret_cast<uintptr_t>(payload.data()), static_cast<uint32_t>(payload.size()),
              post.payload.key};
  request = {};
  request.wr_id = sends_++ << 1;
  request.sg_list = parts;
  request.num_sge = payload.empty() ? 1 : 2;
  request.opcode = IBV_WR_SEND;
  if (copies(payload.size())) request.send_flags = IBV_SEND_INLINE;
}

size_t QueuePair::post_sends(std::span<const SendPost> batch) {
  std::array<ibv_send_wr, kSendBatchMax> requests;
  std::array<ibv_sge, 2 * kSendBatchMax> parts;
  for (size_t i = 0; i < batch.size(); ++i) {
    fill(batch[i], requests[i], &parts[2 * i]);
    if (i > 0) requests[i - 1].next = &requests[i];
  }
  requests[batch.size() - 1].send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* refused = nullptr;
  const int failure = ibv_post_send(pair_.get(), requests.data(), &refused);
  if (failure == 0) return batch.size();
  errno = failure;
  return static_cast<size_t>(refused - requests.data());
}

bool QueuePair::post_receive(const RegisteredBytes& slot) {
  ibv_sge part{reinterpret_cast<uintptr_t>(slot.bytes.data()),
               static_cast<uint32_t>(slot.bytes.size()), slot.key};
  ibv_recv_wr request{};
  request.wr_id = receives_++ << 1 | 1;
  request.sg_list = &part;
  request.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  const int failure = ibv_post_recv(pair_.get(), &request, &refused);
  errno = failure;
  return failure == 0;
}

std::span<const ibv_wc> QueuePair::poll(std::span<ibv_wc> ended) {
  const int count = ibv_poll_cq(queue_.get(), static_cast<int>(ended.size()), ended.data());
  return ended.first(count > 0 ? static_cast<size_t>(count) : 0);
}

bool QueuePair::arm() {
  if (armed_) return false;
  armed_ = ibv_req_notify_cq(queue_.get(), 0) == 0;
  return true;
}

}  // namespace gradbus
