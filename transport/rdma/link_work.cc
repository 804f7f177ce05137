// Sends and receives frames on one link. Part of RdmaTransport (rdma.h).
#include <array>
#include <cerrno>
#include <cstring>

#include "common/errors.h"
#include "transport/rdma/rdma.h"

namespace gradbus {
namespace {

constexpr size_t kEndedPerPoll = 32;
// A larger batch would fall out of the second-level cache between the checksum and the device's
// read. Its first frames would also wait longer for their send completion.
constexpr size_t kBatchBytesMax = 256 << 10;

// The status codes of a frame that is longer than the receive slot. InfiniBand devices report the
// first one, soft-RoCE reports the others.
bool is_too_long(ibv_wc_status status) {
  return status == IBV_WC_LOC_LEN_ERR || status == IBV_WC_REM_INV_REQ_ERR ||
         status == IBV_WC_LOC_QP_OP_ERR;
}

}  // namespace

void RdmaTransport::post_waiting(RdmaLink& link) {
  if (link.state != RdmaLink::State::kUp) return;
  for (; !link.receives_waiting.empty(); link.receives_waiting.pop()) {
    RdmaLane& lane = link.lanes[link.receive_lane];
    if (!lane.pair->post_receive(link.receives_waiting.front().bytes))
      return post_broke(link, errno);
    lane.receives.push(link.receives_waiting.front());
    link.receive_lane = (link.receive_lane + 1) % link.lanes.size();
  }
  for (; !link.sends_waiting.empty(); link.sends_waiting.pop()) {
    link.lanes[link.send_lane].waiting.push(link.sends_waiting.front());
    link.send_lane = (link.send_lane + 1) % link.lanes.size();
  }
  for (RdmaLane& lane : link.lanes)
    while (!lane.waiting.empty() && link.state == RdmaLink::State::kUp) post_sends(link, lane);
}

void RdmaTransport::post_sends(RdmaLink& link, RdmaLane& lane) {
  std::array<SendPost, kSendBatchMax> batch;
  size_t count = 0;
  for (size_t bytes = 0; count < lane.waiting.size() && count < kSendBatchMax; ++count) {
    const RdmaPost& post = lane.waiting[count];
    bytes += post.bytes.bytes.size();
    if (count > 0 && bytes > kBatchBytesMax) break;
    batch[count] = {post.header, post.bytes};
  }
  const size_t taken = lane.pair->post_sends(std::span(batch).first(count));
  const int failure = errno;
  for (size_t i = 0; i < taken; ++i, lane.waiting.pop()) {
    const uint64_t bytes = lane.waiting.front().bytes.bytes.size();
    sent_bytes_.add(bytes);
    if (lane.pair->copies(bytes)) send_copied_bytes_.add(bytes);
    lane.waiting.front().number = lane.next_number++;
    lane.sends.push(lane.waiting.front());
  }
  if (taken < count) post_broke(link, failure);
}

void RdmaTransport::post_broke(RdmaLink& link, int failure) {
  lose_link(link, std::string("the device refused a request: ") + std::strerror(failure));
}

// Processes the completions of the device. Returns whether there were any.
bool RdmaTransport::reap(RdmaLink& link) {
  bool any = false;
  if (link.state != RdmaLink::State::kUp && link.state != RdmaLink::State::kEnding) return any;
  for (RdmaLane& lane : link.lanes) any |= reap_lane(link, lane);
  if (link.state == RdmaLink::State::kEnding && link.empty()) close_link(link);
  return any;
}

bool RdmaTransport::reap_lane(RdmaLink& link, RdmaLane& lane) {
  std::array<ibv_wc, kEndedPerPoll> room;
  for (bool any = false;; any = true) {
    const std::span<const ibv_wc> ended = lane.pair->poll(room);
    for (const ibv_wc& work : ended)
      QueuePair::is_receive(work) ? receive_ended(link, lane, work) : send_ended(link, lane, work);
    if (ended.size() < room.size()) return any || !ended.empty();
  }
}

// All earlier sends of the lane have arrived too: a failed one would have reported its error first.
void RdmaTransport::send_ended(RdmaLink& link, RdmaLane& lane, const ibv_wc& work) {
  const uint64_t number = QueuePair::send_number(work);
  while (!lane.sends.empty() && lane.sends.front().number < number)
    end_post(link, lane.sends, true, Code::kOk);
  if (lane.sends.empty()) return;
  if (work.status != IBV_WC_SUCCESS) work_failed(link, work);
  const Code code = work.status == IBV_WC_SUCCESS ? Code::kOk : link.end_code;
  end_post(link, lane.sends, true, code);
}

void RdmaTransport::receive_ended(RdmaLink& link, RdmaLane& lane, const ibv_wc& work) {
  if (lane.receives.empty()) return;
  if (work.status != IBV_WC_SUCCESS) {
    work_failed(link, work);
    return end_post(link, lane.receives, false, link.end_code);
  }
  const Status frame = check_frame(lane.receives.front(), work.byte_len);
  if (frame.ok()) {
    received_bytes_.add(work.byte_len - sizeof(FrameHeader));
    return end_post(link, lane.receives, false, Code::kOk, work.byte_len);
  }
  if (link.state == RdmaLink::State::kUp)
    end_link(link, frame.code(), frame.with_context(link.peer).message());
  end_post(link, lane.receives, false, frame.code());
}

// Only the first failure gives the reason for the end of the link. Later ones are consequences.
void RdmaTransport::work_failed(RdmaLink& link, const ibv_wc& work) {
  if (link.state != RdmaLink::State::kUp) return;
  if (QueuePair::is_receive(work) && is_too_long(work.status)) {
    const Status status =
        error("D601", "frame field length is more than the receive posted for it holds");
    return end_link(link, status.code(), status.with_context(link.peer).message());
  }
  if (work.status == IBV_WC_RETRY_EXC_ERR)
    return lose_link(link, "it does not acknowledge what was sent to it");
  lose_link(link,
            std::string("the queue pair failed: ") + device_->verbs().wc_status_str(work.status));
}

// No key to the slot was ever sent to a peer, so nothing can write into it any more.
Status RdmaTransport::check_frame(const RdmaPost& receive, uint32_t bytes) const {
  FrameHeader header;
  if (bytes < sizeof(header))
    return error("D601", "frame field length: the frame is shorter than a header");
  std::memcpy(&header, receive.bytes.bytes.data(), sizeof(header));
  GRADBUS_RETURN_IF_ERROR(check_frame_header(header));
  if (header.kind == static_cast<uint8_t>(FrameKind::kHello))
    return error("D601", "frame field kind is 1, a hello in the middle of a link");
  if (header.length != bytes - sizeof(header))
    return error("D601", "frame field length is " + std::to_string(header.length) + ", but " +
                             std::to_string(bytes - sizeof(header)) + " bytes came");
  return check_frame_payload(header, receive.bytes.bytes.subspan(sizeof(header), header.length));
}

void RdmaTransport::end_post(RdmaLink& link, BoundedQueue<RdmaPost>& posts, bool send, Code code,
                             uint64_t bytes) {
  const RdmaPost& post = posts.front();
  if (send) {
    events_of(link).sent(post.token, code);
  } else {
    events_of(link).received(post.token, code, bytes);
  }
  regions_->let_go(post.bytes);
  posts.pop();
}

}  // namespace gradbus
