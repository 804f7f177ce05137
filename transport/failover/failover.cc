#include "transport/failover/failover.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/errors.h"
#include "transport/options.h"

namespace gradbus {
namespace {

constexpr size_t kEventsPerDrain = 64;
constexpr uint32_t kTicksPerTimeout = 16;

}  // namespace

Result<std::unique_ptr<Transport>> FailoverTransport::create(std::vector<InnerTransport> inner,
                                                             const TransportOptions& options) {
  GRADBUS_RETURN_IF_ERROR(check_transport_options(options));
  if (inner.empty() || inner.size() > kPathsMax) {
    return error("F100", std::to_string(inner.size()) + " paths of one agent, allowed: 1 to " +
                             std::to_string(kPathsMax));
  }
  std::unique_ptr<FailoverTransport> transport(new FailoverTransport(options));
  GRADBUS_RETURN_IF_ERROR(transport->start(std::move(inner)));
  return std::unique_ptr<Transport>(std::move(transport));
}

Status FailoverTransport::start(std::vector<InnerTransport> inner) {
  Nanos tick = peer_timeout() / kTicksPerTimeout;
  if (options_.return_ms > 0) tick = std::min(tick, options_.return_ms * kMillisecond / 8);
  GRADBUS_RETURN_IF_ERROR(poller_.open(std::max(tick, kMillisecond)));
  std::vector<PathAddress> addresses;
  for (InnerTransport& one : inner) {
    const int fd = one.transport->wait_fd();
    pollable_ &= fd >= 0 && poller_.watch_inner(fd, inner_.size());
    addresses.push_back({one.name, one.transport->local_address()});
    inner_.emplace_back();
    inner_.back().name = std::move(one.name);
    inner_.back().transport = std::move(one.transport);
  }
  address_ = format_paths(addresses);
  return {};
}

void FailoverTransport::expect_polls(bool expected) {
  polls_expected_ = expected;
  for (const Inner& inner : inner_) inner.transport->expect_polls(expected);
}

TransportTotals FailoverTransport::totals() const {
  TransportTotals totals;
  for (size_t i = 0; i < inner_.size(); ++i) {
    const TransportTotals inner = inner_[i].transport->totals();
    totals.sent_bytes += inner.sent_bytes;
    totals.received_bytes += inner.received_bytes;
    totals.send_copied_bytes += inner.send_copied_bytes;
    totals.receive_copied_bytes += inner.receive_copied_bytes;
    totals.shared_bytes += inner.shared_bytes;
    totals.paths.push_back(
        {inner_[i].name + " " + inner_[i].transport->local_address(), links_on_[i].value()});
  }
  totals.switches = switches_.value();
  return totals;
}

// ---- memory: each region exists in every inner transport

Result<RegionId> FailoverTransport::register_memory(std::span<std::byte> memory) {
  std::vector<RegionId> inner_regions;
  for (Inner& inner : inner_) {
    Result<RegionId> region = inner.transport->register_memory(memory);
    if (!region.ok()) {
      for (size_t i = 0; i < inner_regions.size(); ++i)
        inner_[i].transport->unregister_memory(inner_regions[i]);
      return region.status().with_context(inner.name);
    }
    inner_regions.push_back(region.value());
  }
  const RegionId region = regions_.add(memory);
  for (size_t i = 0; i < inner_.size(); ++i) {
    if (inner_[i].regions.size() <= region.index) inner_[i].regions.resize(region.index + 1);
    inner_[i].regions[region.index] = inner_regions[i];
  }
  return region;
}

void FailoverTransport::unregister_memory(RegionId region) {
  if (!regions_.holds(region)) return;
  for (Inner& inner : inner_) inner.transport->unregister_memory(inner.regions[region.index]);
  regions_.remove(region);
}

Slice FailoverTransport::inner_slice(const Half& half, Slice slice) const {
  if (slice.bytes > 0) slice.region = inner_[half.inner].regions[slice.region.index];
  return slice;
}

// ---- posts

FailoverLink* FailoverTransport::open_link(LinkId id) const {
  FailoverLink* link = links_.find(id);
  const bool over = link == nullptr || link->state == FailoverLink::State::kEnding ||
                    link->state == FailoverLink::State::kClosed;
  return over ? nullptr : link;
}

Code FailoverTransport::post_send(LinkId id, const FrameHeader& header, Slice payload,
                                  uint64_t token) {
  FailoverLink* link = open_link(id);
  if (link == nullptr) return Code::kClosed;
  const auto bytes = regions_.resolve(payload);
  if (!bytes || bytes->size() > kFramePayloadBytesMax ||
      header.kind == static_cast<uint8_t>(FrameKind::kHello)) {
    return Code::kInvalid;
  }
  if (link->sends_outstanding == options_.posts_max || link->sends.full()) return Code::kBusy;
  ++link->sends_outstanding;
  link->sends.push(header, payload, token);
  if (link->peer_ready && send_frames(*link)) queue(*link);
  return Code::kOk;
}

Code FailoverTransport::post_receive(LinkId id, Slice into, uint64_t token) {
  FailoverLink* link = open_link(id);
  if (link == nullptr) return Code::kClosed;
  const auto slot = regions_.resolve(into);
  if (!slot || slot->size() < sizeof(FrameHeader)) return Code::kInvalid;
  if (link->receives_outstanding == options_.posts_max) return Code::kBusy;
  ++link->receives_outstanding;
  link->receives.push(into, slot->data(), token);
  if (lend_receives(*link)) queue(*link);
  return Code::kOk;
}

void FailoverTransport::disconnect(LinkId id) {
  FailoverLink* link = open_link(id);
  if (link != nullptr) end_link(*link, Code::kClosed, "");
}

// ---- poll

size_t FailoverTransport::poll(std::span<TransportEvent> events) {
  if (events_.size() < events.size()) collect();
  if (tick_due_) tick();
  serve();
  const size_t count = hand_out(events);
  flush();
  if (work_.empty() && events_.empty()) {
    poller_.calm();
  } else {
    poller_.wake();
  }
  return count;
}

void FailoverTransport::collect() {
  std::array<epoll_event, kPathsMax + 2> edges;
  for (const epoll_event& edge : poller_.ready(edges)) {
    if (edge.data.u64 == Poller::kTick) tick_due_ = true;
    if (edge.data.u64 >= Poller::kFirstInner && pollable_ && !polls_expected_)
      drain(static_cast<uint32_t>(edge.data.u64 - Poller::kFirstInner));
  }
  const bool all = !pollable_ || polls_expected_;
  for (uint32_t i = 0; i < inner_.size() && all; ++i) drain(i);
}

// Delivered frames must also be reported, because the caller may not return for long. Frames that
// arrive meanwhile are delivered next time.
void FailoverTransport::flush() {
  for (uint32_t i = 0; i < inner_.size(); ++i)
    if (std::exchange(inner_[i].told, false)) drain(i);
}

void FailoverTransport::drain(uint32_t inner) {
  std::array<TransportEvent, kEventsPerDrain> fresh;
  const size_t count = inner_[inner].transport->poll(fresh);
  for (size_t i = 0; i < count; ++i) note(inner, fresh[i]);
}

void FailoverTransport::note(uint32_t inner, const TransportEvent& event) {
  using Kind = TransportEvent::Kind;
  if (event.kind == Kind::kAccepted) return accepted(inner, event);
  Half& half = *inner_[inner].halves[event.link.index];
  switch (event.kind) {
    case Kind::kConnected:
      half.up = true;
      if (half.link != nullptr && half.link->state == FailoverLink::State::kTrying &&
          half.link->path.data->up && half.link->path.control->up)
        attach(*half.link, half.link->path);
      break;
    case Kind::kSent:
      if (half.control) {
        control_sent(half);
      } else if (half.link != nullptr) {
        data_event(*half.link, event);
      }
      break;
    case Kind::kReceived:
      if (half.control) {
        control_received(half, event);
      } else if (half.link != nullptr) {
        data_event(*half.link, event);
      }
      break;
    case Kind::kClosed: half_closed(half, event.code); break;
    case Kind::kAccepted: break;
  }
}

void FailoverTransport::queue(FailoverLink& link) {
  if (link.queued) return;
  link.queued = true;
  work_.push(link.id);
  poller_.wake();
}

// Each link in the queue gets one turn. A link whose transport was busy gets another one.
void FailoverTransport::serve() {
  for (size_t turns = work_.size(); turns > 0; --turns) {
    FailoverLink* link = links_.find(work_.front());
    work_.pop();
    link->queued = false;
    if (work(*link)) queue(*link);
  }
}

size_t FailoverTransport::hand_out(std::span<TransportEvent> events) {
  size_t count = 0;
  for (; count < events.size() && !events_.empty(); ++count) {
    events[count] = events_.front();
    events_.pop();
    FailoverLink& link = *links_.find(events[count].link);
    switch (events[count].kind) {
      case TransportEvent::Kind::kSent: --link.sends_outstanding; break;
      case TransportEvent::Kind::kReceived: --link.receives_outstanding; break;
      case TransportEvent::Kind::kClosed:
        links_.remove(link.id);
        events_max_ -= link_events_max(options_.posts_max);
        --links_alive_;
        break;
      default: break;
    }
  }
  return count;
}

}  // namespace gradbus
