#include "transport/tcp/tcp.h"

#include <algorithm>
#include <array>

#include "common/errors.h"
#include "transport/net/local_socket.h"
#include "transport/net/socket.h"
#include "transport/options.h"

namespace gradbus {
namespace {

constexpr size_t kEdgesPerPoll = 64;
constexpr uint32_t kTicksPerTimeout = 8;

}  // namespace

Result<std::unique_ptr<Transport>> TcpTransport::create(const TransportOptions& options) {
  GRADBUS_RETURN_IF_ERROR(check_transport_options(options));
  std::unique_ptr<TcpTransport> transport(new TcpTransport(options));
  GRADBUS_RETURN_IF_ERROR(transport->start());
  return std::unique_ptr<Transport>(std::move(transport));
}

Status TcpTransport::start() {
  Result<CongestionControl> congestion = CongestionControl::choose(options_.congestion_control);
  GRADBUS_RETURN_IF_ERROR(congestion.status());
  congestion_ = congestion.take();
  const Nanos tick = options_.peer_timeout_ms * kMillisecond / kTicksPerTimeout;
  GRADBUS_RETURN_IF_ERROR(poller_.open(std::max(tick, kMillisecond)));
  Result<SocketAddress> bind_to = resolve_bind_address(options_.bind_address);
  GRADBUS_RETURN_IF_ERROR(bind_to.status());
  Result<Fd> listener = listen_on(bind_to.value(), congestion_);
  GRADBUS_RETURN_IF_ERROR(listener.status());
  const SocketAddress told = reachable_address(local_address_of(listener.value().get()));
  address_ = format_address(told);
  listeners_.push_back({listener.take()});
  if (options_.local_links) listeners_.push_back({listen_locally(told), true});
  std::erase_if(listeners_, [](const Listener& one) { return !one.fd.valid(); });
  for (Listener& one : listeners_) one.watched = poller_.watch_listener(one.fd.get());
  return {};
}

Result<RegionId> TcpTransport::register_memory(std::span<std::byte> memory) {
  return regions_.add(memory);
}

void TcpTransport::unregister_memory(RegionId region) { regions_.remove(region); }

TcpLink* TcpTransport::open_link(LinkId id) const {
  TcpLink* link = links_.find(id);
  return link == nullptr || link->state == TcpLink::State::kClosed ? nullptr : link;
}

// Each byte is copied into the kernel's buffers or into shared memory, and out of them at the other
// end. Small payloads are copied once more, through the read-ahead buffer.
TransportTotals TcpTransport::totals() const {
  TransportTotals totals;
  totals.sent_bytes = totals.send_copied_bytes = sent_bytes_.value();
  totals.received_bytes = received_bytes_.value();
  totals.receive_copied_bytes = received_bytes_.value() + copied_twice_bytes_.value();
  totals.shared_bytes = shared_bytes_.value();
  return totals;
}

Code TcpTransport::post_send(LinkId id, const FrameHeader& header, Slice payload, uint64_t token) {
  TcpLink* link = open_link(id);
  if (link == nullptr) return Code::kClosed;
  const auto bytes = regions_.resolve(payload);
  if (!bytes || bytes->size() > kFramePayloadBytesMax ||
      header.kind == static_cast<uint8_t>(FrameKind::kHello)) {
    return Code::kInvalid;
  }
  if (link->sends == options_.posts_max) return Code::kBusy;
  ++link->sends;
  sent_bytes_.add(bytes->size());
  FrameHeader sealed_later = header;
  sealed_later.length = static_cast<uint32_t>(bytes->size());
  Stream& stream = choose_stream(*link, bytes->size());
  if (stream.channel.local()) shared_bytes_.add(bytes->size());
  stream.writer.push(sealed_later, *bytes, token);
  if (has_work(stream)) queue(stream);
  return Code::kOk;
}

Code TcpTransport::post_receive(LinkId id, Slice into, uint64_t token) {
  TcpLink* link = open_link(id);
  if (link == nullptr) return Code::kClosed;
  const auto slot = regions_.resolve(into);
  if (!slot || slot->size() < sizeof(FrameHeader)) return Code::kInvalid;
  if (link->receives_outstanding == options_.posts_max) return Code::kBusy;
  ++link->receives_outstanding;
  link->receives.push({*slot, token});
  for (const auto& stream : link->streams) {
    if (!stream->waits_for_receive) continue;
    stream->waits_for_receive = false;
    queue(*stream);
  }
  return Code::kOk;
}

void TcpTransport::disconnect(LinkId id) {
  TcpLink* link = open_link(id);
  if (link != nullptr) end_link(*link, Code::kClosed, "");
}

size_t TcpTransport::poll(std::span<TransportEvent> events) {
  retired_.clear();
  collect();
  serve(events.size());
  if (tick_due_) tick();
  const size_t count = hand_out(events);
  if (work_.empty() && events_.empty()) {
    poller_.calm();
  } else {
    poller_.wake();
  }
  return count;
}

void TcpTransport::collect() {
  std::array<epoll_event, kEdgesPerPoll> edges;
  for (const epoll_event& edge : poller_.ready(edges)) {
    switch (edge.data.u64) {
      case Poller::kWake: break;
      case Poller::kTick: tick_due_ = true; break;
      case Poller::kListener: accept_connections(); break;
      default: note(*static_cast<Stream*>(edge.data.ptr), edge.events);
    }
  }
}

void TcpTransport::note(Stream& stream, uint32_t edges) {
  if (stream.role == Stream::Role::kRetired) return;
  if (edges & EPOLLIN) stream.readable = true;
  if (edges & EPOLLOUT) stream.writable = true;
  if ((edges & EPOLLIN) && stream.channel.take_bells()) stream.writable = true;
  if (edges & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
    stream.readable = stream.writable = stream.hung_up = true;
    stream.channel.hang_up();
    if (stream.role == Stream::Role::kLink) note_end(stream, edges);
  }
  queue(stream);
}

void TcpTransport::queue(Stream& stream) {
  if (stream.queued) return;
  stream.queued = true;
  work_.push(&stream);
  poller_.wake();
}

// Each stream in the queue gets one turn. Streams with more work are queued again at the end.
void TcpTransport::serve(size_t events_wanted) {
  for (size_t turns = work_.size(); turns > 0 && !work_.empty(); --turns) {
    if (events_.size() >= events_wanted) return;
    Stream& stream = *work_.front();
    work_.pop();
    stream.queued = false;
    serve_one(stream);
    if (has_work(stream)) queue(stream);
  }
}

void TcpTransport::serve_one(Stream& stream) {
  switch (stream.role) {
    case Stream::Role::kPending: return read_pending(stream);
    case Stream::Role::kDraining: return drain(stream);
    case Stream::Role::kRetired: return;
    case Stream::Role::kLink: break;
  }
  if (stream.link->state == TcpLink::State::kConnecting) return greet(stream);
  read_frames(stream);
  if (stream.role == Stream::Role::kLink) write_frames(stream);
}

size_t TcpTransport::hand_out(std::span<TransportEvent> events) {
  size_t count = 0;
  for (; count < events.size() && !events_.empty(); ++count) {
    events[count] = events_.front();
    events_.pop();
    TcpLink& link = *links_.find(events[count].link);
    switch (events[count].kind) {
      case TransportEvent::Kind::kSent: --link.sends; break;
      case TransportEvent::Kind::kReceived:
        --link.receives_outstanding;
        if (events[count].code == Code::kOk)
          received_bytes_.add(events[count].bytes - sizeof(FrameHeader));
        break;
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
