// Sends and receives on the two halves of a path. Part of FailoverTransport (failover.h).
#include <cstring>

#include "common/errors.h"
#include "transport/failover/failover.h"

namespace gradbus {

using State = FailoverLink::State;

// Returns whether the link needs another turn, because an inner transport was busy.
bool FailoverTransport::work(FailoverLink& link) {
  const bool busy_receives = lend_receives(link);
  const bool busy_sends = send_frames(link);
  return tell_state(link) || busy_receives || busy_sends;
}

// ---- the data half

bool FailoverTransport::lend_receives(FailoverLink& link) {
  if (link.path.data == nullptr || (link.state != State::kUp && link.state != State::kTrying))
    return false;
  Half& data = *link.path.data;
  for (BoundedQueue<uint32_t>& waiting = link.receives.waiting(); !waiting.empty();) {
    const uint32_t index = waiting.front();
    const Slice into = inner_slice(data, link.receives[index].into);
    const Code code = transport_of(data).post_receive(data.id, into, index);
    if (code != Code::kOk) return code == Code::kBusy;
    waiting.pop();
  }
  return false;
}

bool FailoverTransport::send_frames(FailoverLink& link) {
  if (link.state != State::kUp || !link.peer_ready || link.path.data == nullptr) return false;
  Half& data = *link.path.data;
  while (const auto frame = link.sends.waiting()) {
    const Code code = transport_of(data).post_send(
        data.id, *frame->header, inner_slice(data, frame->payload), frame->sequence);
    if (code == Code::kInvalid) {
      end_link(link, Code::kPeerLost,
               error("P102", "link to " + link.peer +
                                 ": the memory of a frame was removed before it was sent")
                   .message());
    }
    if (code != Code::kOk) return code == Code::kBusy;
    link.sends.posted();
  }
  return false;
}

void FailoverTransport::data_event(FailoverLink& link, const TransportEvent& event) {
  if (event.kind == TransportEvent::Kind::kSent)
    return link.sends.returned(static_cast<uint32_t>(event.token), events_of(link));
  if (event.code == Code::kOk && link.state != State::kEnding) return take_frame(link, event);
  link.receives.waiting().push(static_cast<uint32_t>(event.token));
}

void FailoverTransport::take_frame(FailoverLink& link, const TransportEvent& event) {
  using Verdict = ReceiveWindow::Verdict;
  const auto index = static_cast<uint32_t>(event.token);
  const ReceivePosts::Post& post = link.receives[index];
  FrameHeader header;
  std::memcpy(&header, post.bytes, sizeof(header));
  const bool numbered = (header.kind & kSequencedFrame) != 0;
  const Verdict verdict = numbered ? link.taken.take(header.magic) : Verdict::kImpossible;
  link.state_due = true;
  queue(link);
  if (verdict != Verdict::kNew) {
    link.receives.waiting().push(index);
    if (verdict == Verdict::kImpossible)
      leave(link, Code::kCorrupt, "a frame came without a number that its link can have");
    return;
  }
  header.kind &= static_cast<uint8_t>(~kSequencedFrame);
  header.magic = kFrameMagic;
  reseal_header(header);
  std::memcpy(post.bytes, &header, sizeof(header));
  link.progress = true;
  announce(link);
  events_of(link).received(post.token, Code::kOk, event.bytes);
  link.receives.remove(index);
}

// ---- the control half

void FailoverTransport::serve_control(Half& half) {
  const Result<RegionId> region = transport_of(half).register_memory(half.memory);
  if (!region.ok()) return transport_of(half).disconnect(half.id);
  half.region = region.value();
  half.serves = true;
  for (size_t slot = 0; slot < Half::kReceives; ++slot) lend_control(half, slot);
}

void FailoverTransport::lend_control(Half& half, size_t slot) {
  const Slice into{half.region, slot * Half::kReceiveBytes, Half::kReceiveBytes};
  const Code code = transport_of(half).post_receive(half.id, into, slot);
  if (code == Code::kBusy) half.unlent |= 1u << slot;
}

bool FailoverTransport::tell_state(FailoverLink& link) {
  Half* control = link.path.control;
  if (control == nullptr || !control->serves || link.state == State::kEnding) return false;
  for (size_t slot = 0; slot < Half::kReceives; ++slot) {
    if ((control->unlent >> slot & 1) == 0) continue;
    control->unlent &= ~(1u << slot);
    lend_control(*control, slot);
  }
  if (control->sending || !link.state_due) return control->unlent != 0;
  control->said = link.taken.taken();
  link.state_due = !send_control(*control);
  return link.state_due || control->unlent != 0;
}

// Returns false when its transport was busy.
bool FailoverTransport::send_control(Half& half) {
  if (half.sending) return true;  // control_sent() continues
  const FrameHeader frame = pack_link_state({half.said, half.due, half.farewell});
  const Code code = transport_of(half).post_send(half.id, frame, {}, 0);
  half.sending = code == Code::kOk;
  if (half.sending) half.told = half.due;
  inner_[half.inner].told |= half.sending;
  return code != Code::kBusy;
}

void FailoverTransport::control_sent(Half& half) {
  half.sending = false;
  if (half.due == half.told) {
    if (half.told == Notice::kGoodbye) return transport_of(half).disconnect(half.id);
    if (half.link != nullptr && half.link->state_due) queue(*half.link);
  } else {
    (void)send_control(half);
  }
}

void FailoverTransport::control_received(Half& half, const TransportEvent& event) {
  if (event.code != Code::kOk) return;
  FrameHeader frame;
  const size_t slot = event.token;
  std::memcpy(&frame, half.memory.data() + slot * Half::kReceiveBytes, sizeof(frame));
  lend_control(half, slot);
  if (half.asks_for != nullptr) return probe_answered(half, frame);
  if (half.link == nullptr) return;
  FailoverLink& link = *half.link;
  if (half.unlent != 0) queue(link);
  const Result<LinkState> state = unpack_link_state(frame);
  if (state.ok()) return on_link_state(link, state.value());
  leave(link, state.status().code(), state.status().message());
}

void FailoverTransport::on_link_state(FailoverLink& link, const LinkState& state) {
  const size_t events_before = events_.size();
  if (!link.sends.taken(state.taken, events_of(link)))
    return leave(link, Code::kCorrupt, "the other side claims a frame that it cannot have");
  link.progress |= events_.size() > events_before;
  switch (state.notice) {
    case Notice::kGoodbye: {
      const bool orderly = state.code == Code::kClosed;
      const std::string how = orderly ? "it closed the connection"
                                      : "it ended the link: " + std::string(code_name(state.code));
      return end_link(link, orderly ? Code::kClosed : Code::kPeerLost,
                      error("P102", "link to " + link.peer + ": " + how).message());
    }
    case Notice::kLeaving:
      if (link.state == State::kLeaving)
        return transport_of(*link.path.control).disconnect(link.path.control->id);
      return leave(link, Code::kPeerLost, "the other side has left it");
    case Notice::kState:
      if (!link.peer_ready && (link.state == State::kUp || link.state == State::kTrying))
        path_answered(link);
  }
}

}  // namespace gradbus
