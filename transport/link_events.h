// The events of one transport, waiting to be polled. Each post on a link adds one when it ends, so
// a queue with room for every outstanding post never overflows. One thread owns it.
#pragma once

#include <cstdint>

#include "transport/bounded_queue.h"
#include "transport/transport.h"

namespace gradbus {

using EventQueue = BoundedQueue<TransportEvent>;

// kAccepted or kConnected, one event per post, kClosed.
constexpr size_t link_events_max(uint32_t posts_max) { return 2 * size_t{posts_max} + 2; }

// Adds the events of one link.
class LinkEvents {
 public:
  LinkEvents(EventQueue& queue, LinkId link) : queue_(queue), link_(link) {}

  void sent(uint64_t token, Code code) {
    add({.kind = TransportEvent::Kind::kSent, .code = code, .token = token});
  }
  // `bytes` counts header and payload; 0 when nothing was delivered.
  void received(uint64_t token, Code code, uint64_t bytes) {
    add({.kind = TransportEvent::Kind::kReceived, .code = code, .token = token, .bytes = bytes});
  }
  void accepted(const FrameHeader& hello) {
    add({.kind = TransportEvent::Kind::kAccepted, .hello = hello});
  }
  void connected() { add({.kind = TransportEvent::Kind::kConnected}); }
  void closed(Code code) { add({.kind = TransportEvent::Kind::kClosed, .code = code}); }

 private:
  void add(TransportEvent event) {
    event.link = link_;
    queue_.push(event);
  }

  EventQueue& queue_;
  LinkId link_;
};

}  // namespace gradbus
