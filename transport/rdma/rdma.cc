#include "transport/rdma/rdma.h"

#include <algorithm>
#include <array>

#include "common/log.h"
#include "transport/net/socket.h"
#include "transport/options.h"

namespace gradbus {
namespace {

constexpr size_t kEdgesPerPoll = 64;
constexpr uint32_t kTicksPerTimeout = 8;

}  // namespace

Result<std::unique_ptr<Transport>> RdmaTransport::create(const VerbsLibrary& verbs,
                                                         const TransportOptions& options) {
  GRADBUS_RETURN_IF_ERROR(check_transport_options(options));
  std::unique_ptr<RdmaTransport> transport(new RdmaTransport(options));
  GRADBUS_RETURN_IF_ERROR(transport->start(verbs));
  return std::unique_ptr<Transport>(std::move(transport));
}

Status RdmaTransport::start(const VerbsLibrary& verbs) {
  const Nanos tick = options_.peer_timeout_ms * kMillisecond / kTicksPerTimeout;
  GRADBUS_RETURN_IF_ERROR(poller_.open(std::max(tick, kMillisecond)));
  Result<SocketAddress> bind_to = resolve_bind_address(options_.bind_address);
  GRADBUS_RETURN_IF_ERROR(bind_to.status());
  Result<Fd> listener = listen_on(bind_to.value(), {});
  GRADBUS_RETURN_IF_ERROR(listener.status());
  listener_ = listener.take();
  const SocketAddress reachable = reachable_address(local_address_of(listener_.get()));
  address_ = format_address(reachable);
  Result<std::unique_ptr<RdmaDevice>> device = RdmaDevice::open(verbs, reachable);
  GRADBUS_RETURN_IF_ERROR(device.status());
  device_ = device.take();
  regions_ = std::make_unique<RdmaRegions>(*device_);
  listening_ = poller_.watch_listener(listener_.get());
  poller_.watch_completions(device_->channel()->fd);
  spdlog::info("RDMA by {}", describe(device_->place()));
  return {};
}

Result<RegionId> RdmaTransport::register_memory(std::span<std::byte> memory) {
  return regions_->add(memory);
}

void RdmaTransport::unregister_memory(RegionId region) { regions_->remove(region); }

// Receiving copies nothing: the device writes into the slot.
TransportTotals RdmaTransport::totals() const {
  TransportTotals totals;
  totals.sent_bytes = sent_bytes_.value();
  totals.received_bytes = received_bytes_.value();
  totals.send_copied_bytes = send_copied_bytes_.value();
  return totals;
}

RdmaLink* RdmaTransport::open_link(LinkId id) const {
  RdmaLink* link = links_.find(id);
  const bool open = link != nullptr && (link->state == RdmaLink::State::kConnecting ||
                                        link->state == RdmaLink::State::kUp);
  return open ? link : nullptr;
}

// The next poll() hands waiting frames to the device, many with one doorbell.
Code RdmaTransport::post_send(LinkId id, const FrameHeader& header, Slice payload, uint64_t token) {
  RdmaLink* link = open_link(id);
  if (link == nullptr) return Code::kClosed;
  const auto bytes = regions_->resolve(payload);
  if (!bytes || bytes->bytes.size() > kFramePayloadBytesMax ||
      header.kind == static_cast<uint8_t>(FrameKind::kHello)) {
    return Code::kInvalid;
  }
  if (link->sends == options_.posts_max) return Code::kBusy;
  ++link->sends;
  FrameHeader sealed_later = header;
  sealed_later.length = static_cast<uint32_t>(bytes->bytes.size());
  regions_->hold(*bytes);
  link->sends_waiting.push({sealed_later, *bytes, token, 0});
  poller_.wake();
  return Code::kOk;
}

Code RdmaTransport::post_receive(LinkId id, Slice into, uint64_t token) {
  RdmaLink* link = open_link(id);
  if (link == nullptr) return Code::kClosed;
  const auto slot = regions_->resolve(into);
  if (!slot || slot->bytes.size() < sizeof(FrameHeader)) return Code::kInvalid;
  if (link->receives == options_.posts_max) return Code::kBusy;
  ++link->receives;
  regions_->hold(*slot);
  link->receives_waiting.push({{}, *slot, token, 0});
  poller_.wake();
  return Code::kOk;
}

void RdmaTransport::disconnect(LinkId id) {
  RdmaLink* link = open_link(id);
  if (link != nullptr) end_link(*link, Code::kClosed, "");
}

size_t RdmaTransport::poll(std::span<TransportEvent> events) {
  retired_.clear();
  collect();
  bool busy = serve();
  if (tick_due_) tick();
  if (!busy && events_.empty() && !polls_expected_) busy = rest();
  const size_t count = hand_out(events);
  if (busy || count > 0 || !events_.empty()) {
    poller_.wake();  // notices are requested only after a turn without any event
  } else {
    poller_.calm();
  }
  return count;
}

void RdmaTransport::collect() {
  std::array<epoll_event, kEdgesPerPoll> edges;
  for (const epoll_event& edge : poller_.ready(edges)) {
    switch (edge.data.u64) {
      case Poller::kWake: break;
      case Poller::kTick: tick_due_ = true; break;
      case Poller::kListener: accept_connections(); break;
      case Poller::kCompletions:
        while (void* pair = device_->next_notice())
          static_cast<QueuePair*>(pair)->on_completion_event();
        break;
      default: on_socket_event(*static_cast<Bootstrap*>(edge.data.ptr));
    }
  }
}

// Posts the waiting work of every link and processes completions. Returns whether there was any.
bool RdmaTransport::serve() {
  bool busy = false;
  for (size_t i = 0; i < live_.size(); ++i) {
    RdmaLink& link = *live_[i];
    busy |= !link.sends_waiting.empty() || !link.receives_waiting.empty();
    post_waiting(link);
    busy |= reap(link);
  }
  std::erase_if(live_,
                [](const RdmaLink* link) { return link->state == RdmaLink::State::kClosed; });
  return busy;
}

// Requests notices, so that the caller may sleep. Work that completed earlier causes no notice, so
// each armed queue is polled once more. Returns whether that found something.
bool RdmaTransport::rest() {
  bool busy = false;
  for (RdmaLink* link : live_) {
    for (RdmaLane& lane : link->lanes)
      if (lane.pair != nullptr && lane.pair->arm()) busy |= reap(*link);
  }
  std::erase_if(live_,
                [](const RdmaLink* link) { return link->state == RdmaLink::State::kClosed; });
  return busy;
}

size_t RdmaTransport::hand_out(std::span<TransportEvent> events) {
  size_t count = 0;
  for (; count < events.size() && !events_.empty(); ++count) {
    events[count] = events_.front();
    events_.pop();
    RdmaLink& link = *links_.find(events[count].link);
    switch (events[count].kind) {
      case TransportEvent::Kind::kSent: --link.sends; break;
      case TransportEvent::Kind::kReceived: --link.receives; break;
      case TransportEvent::Kind::kClosed:
        links_.remove(link.id);
        events_max_ -= link_events_max(options_.posts_max);
        break;
      default: break;
    }
  }
  return count;
}

}  // namespace gradbus
