#include "transport/loopback/loopback.h"

#include <sys/eventfd.h>

#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "common/errors.h"

namespace gradbus {
namespace {

// Everybody who can be connected to.
struct Hub {
  std::mutex mutex;
  std::map<std::string, LoopbackTransport*, std::less<>> by_address;
  uint64_t last_number = 0;
};

Hub& hub() {
  static Hub the_hub;
  return the_hub;
}

}  // namespace

Result<std::unique_ptr<Transport>> LoopbackTransport::create(const TransportOptions& options) {
  if (options.posts_max == 0) return error("F100", "posts_max is 0, allowed: 1 and more");
  std::unique_ptr<LoopbackTransport> transport(new LoopbackTransport(options));
  GRADBUS_RETURN_IF_ERROR(transport->start());
  return std::unique_ptr<Transport>(std::move(transport));
}

Status LoopbackTransport::start() {
  wake_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake_.valid()) return error("D603", "no descriptor for a loopback transport");
  const std::lock_guard lock(hub().mutex);
  const bool named = options_.bind_address.starts_with("loopback:");
  address_ = named ? options_.bind_address : "loopback/" + std::to_string(++hub().last_number);
  if (hub().by_address.emplace(address_, this).second) return {};
  const std::string taken = std::exchange(address_, "");
  return error("D603", "address " + taken + " is taken");
}

LoopbackTransport::~LoopbackTransport() {
  const std::lock_guard lock(hub().mutex);
  if (!address_.empty()) hub().by_address.erase(address_);
  links_.for_each([this](Link& link) {
    if (link.other == nullptr) return;
    end_both(link, Code::kClosed, Code::kClosed, "link to " + address_ + ": it was closed");
  });
}

Result<RegionId> LoopbackTransport::register_memory(std::span<std::byte> memory) {
  return regions_.add(memory);
}

void LoopbackTransport::unregister_memory(RegionId region) { regions_.remove(region); }

LoopbackTransport::Link& LoopbackTransport::add_link() {
  auto link = std::make_unique<Link>();
  link->owner = this;
  link->sends.reserve(options_.posts_max);
  link->receives.reserve(options_.posts_max);
  events_max_ += link_events_max(options_.posts_max);
  events_.reserve(events_max_);
  return links_.add(std::move(link));
}

LoopbackTransport::Link* LoopbackTransport::open_link(LinkId id) const {
  Link* link = links_.find(id);
  return link == nullptr || link->other == nullptr ? nullptr : link;
}

void LoopbackTransport::wake() { (void)eventfd_write(wake_.get(), 1); }

Result<LinkId> LoopbackTransport::connect(std::string_view address, const FrameHeader& hello) {
  const std::lock_guard lock(hub().mutex);
  if (links_.full()) return error("D604", "cannot connect: too many links");
  Link& here = add_link();
  const auto found = hub().by_address.find(address);
  if (found == hub().by_address.end() || found->second->links_.full()) {
    const Status status = error("D604", "cannot connect to " + std::string(address));
    end(here, status.code(), status.message());
    return here.id;
  }
  LoopbackTransport& peer = *found->second;
  Link& there = peer.add_link();
  here.other = &there;
  there.other = &here;
  FrameHeader greeting = hello;
  greeting.kind = static_cast<uint8_t>(FrameKind::kHello);
  events_of(here).connected();
  peer.events_of(there).accepted(greeting);
  wake();
  peer.wake();
  return here.id;
}

Code LoopbackTransport::post_send(LinkId id, const FrameHeader& header, Slice payload,
                                  uint64_t token) {
  const std::lock_guard lock(hub().mutex);
  Link* link = open_link(id);
  if (link == nullptr) return Code::kClosed;
  const auto bytes = regions_.resolve(payload);
  if (!bytes || bytes->size() > kFramePayloadBytesMax ||
      header.kind == static_cast<uint8_t>(FrameKind::kHello)) {
    return Code::kInvalid;
  }
  if (link->sends_outstanding == options_.posts_max) return Code::kBusy;
  ++link->sends_outstanding;
  FrameHeader frame = header;
  frame.length = static_cast<uint32_t>(bytes->size());
  link->sends.push({frame, *bytes, token});
  match(*link);
  return Code::kOk;
}

Code LoopbackTransport::post_receive(LinkId id, Slice into, uint64_t token) {
  const std::lock_guard lock(hub().mutex);
  Link* link = open_link(id);
  if (link == nullptr) return Code::kClosed;
  const auto slot = regions_.resolve(into);
  if (!slot || slot->size() < sizeof(FrameHeader)) return Code::kInvalid;
  if (link->receives_outstanding == options_.posts_max) return Code::kBusy;
  ++link->receives_outstanding;
  link->receives.push({*slot, token});
  match(*link->other);
  return Code::kOk;
}

void LoopbackTransport::match(Link& sender) {
  while (!sender.sends.empty() && !sender.other->receives.empty()) {
    if (deliver(sender)) continue;
    const Status status = error("D601", sender.owner->address_ +
                                            ": frame field length or kind is not what the receiver "
                                            "can take");
    return end_both(*sender.other, status.code(), Code::kClosed, status.message());
  }
}

// False when the receiver cannot take the frame; nothing has happened then.
bool LoopbackTransport::deliver(Link& sender) {
  Link& receiver = *sender.other;
  Outgoing& frame = sender.sends.front();
  Incoming& receive = receiver.receives.front();
  const size_t bytes = sizeof(frame.header) + frame.payload.size();
  seal_frame(frame.header, frame.payload);
  if (receive.slot.size() < bytes || !check_frame_header(frame.header).ok()) return false;
  std::memcpy(receive.slot.data(), &frame.header, sizeof(frame.header));
  if (!frame.payload.empty()) {
    std::memcpy(receive.slot.data() + sizeof(frame.header), frame.payload.data(),
                frame.payload.size());
  }
  sender.owner->events_of(sender).sent(frame.token, Code::kOk);
  receiver.owner->events_of(receiver).received(receive.token, Code::kOk, bytes);
  sender.sends.pop();
  receiver.receives.pop();
  sender.owner->wake();
  receiver.owner->wake();
  return true;
}

void LoopbackTransport::end(Link& link, Code code, std::string text) {
  LoopbackTransport& owner = *link.owner;
  LinkEvents events = owner.events_of(link);
  for (; !link.sends.empty(); link.sends.pop()) events.sent(link.sends.front().token, code);
  for (; !link.receives.empty(); link.receives.pop()) {
    events.received(link.receives.front().token, code, 0);
  }
  events.closed(code);
  link.other = nullptr;
  owner.links_.set_error(link.id, std::move(text));
  owner.wake();
}

// `link` closed for `code` with `text`, its other side for `code_of_other` and the reason that it
// sees. An orderly end leaves no text on the side that asked for it.
void LoopbackTransport::end_both(Link& link, Code code, Code code_of_other,
                                 const std::string& text) {
  Link& other = *link.other;
  const bool asked = code == Code::kClosed;
  end(other, code_of_other, error("P102", asked ? text : "the other side closed it").message());
  end(link, code, asked ? "" : text);
}

void LoopbackTransport::disconnect(LinkId id) {
  const std::lock_guard lock(hub().mutex);
  Link* link = open_link(id);
  if (link == nullptr) return;
  end_both(*link, Code::kClosed, Code::kClosed,
           "link to " + address_ + ": it closed the connection");
}

size_t LoopbackTransport::poll(std::span<TransportEvent> events) {
  const std::lock_guard lock(hub().mutex);
  size_t count = 0;
  for (; count < events.size() && !events_.empty(); ++count) {
    events[count] = events_.front();
    events_.pop();
    hand_out(events[count]);
  }
  eventfd_t ignored = 0;
  if (events_.empty()) (void)eventfd_read(wake_.get(), &ignored);
  return count;
}

void LoopbackTransport::hand_out(const TransportEvent& event) {
  Link& link = *links_.find(event.link);
  switch (event.kind) {
    case TransportEvent::Kind::kSent: --link.sends_outstanding; break;
    case TransportEvent::Kind::kReceived: --link.receives_outstanding; break;
    case TransportEvent::Kind::kClosed:
      links_.remove(link.id);
      events_max_ -= link_events_max(options_.posts_max);
      break;
    default: break;
  }
}

std::string LoopbackTransport::link_error(LinkId link) const {
  const std::lock_guard lock(hub().mutex);
  return links_.error(link);
}

}  // namespace gradbus
