#include "data_plane/job_links.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/errors.h"

namespace gradbus {
namespace {

// Data slots limit the data of a peer in flight; the kernel's socket buffers add to it.
constexpr uint64_t kDataSlots = 16;
constexpr uint64_t kCreditSlots = 16;
constexpr uint64_t kDataSlotBytes = (kReceiveSlotBytes + 127) / 128 * 128;
constexpr uint64_t kCreditSlotBytes = 128;
static_assert(kCreditSlotBytes >= sizeof(FrameHeader));
// Nothing overtakes bytes that the transport has. So it gets no more than these while frames have
// priorities. At 1 Gbit/s they take 8 ms.
constexpr uint64_t kOrderedBytesMax = 1 << 20;

// Pages without a frame cost nothing.
std::span<std::byte> map_private(size_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return {};
  return {static_cast<std::byte*>(address), bytes};
}

}  // namespace

JobLinks::JobLinks(Transport& transport, const LinkIdentity& identity,
                   std::vector<std::string> addresses, DepthHistogram& queued)
    : transport_(transport),
      identity_(identity),
      addresses_(std::move(addresses)),
      peers_(addresses_.size()),
      queued_(queued) {
  active_.reserve(peers_.size());
}

JobLinks::~JobLinks() {
  for (Peer& peer : peers_) {
    take_back(peer.out.slots);
    take_back(peer.in.slots);
  }
}

// ---- room

Status JobLinks::expect_sends(uint32_t peer, uint32_t frames) {
  Outgoing& out = peers_.at(peer).out;
  const auto known = static_cast<uint32_t>(out.frames.size());
  const uint32_t reused = std::min(out.spare, frames);
  out.spare -= reused;
  out.frames.resize(known + frames - reused);
  out.unused.reserve(out.frames.size());
  for (uint32_t token = known; token < out.frames.size(); ++token) out.unused.push_back(token);
  out.waiting.reserve(out.frames.size());
  list(peer);
  return known == 0 && frames > 0 && !dropped(peer) ? connect(peer) : Status();
}

void JobLinks::expect_credits(uint32_t peer, uint32_t frames) {
  Incoming& in = peers_.at(peer).in;
  in.credits_max += frames;
  in.credits.reserve(in.credits_max);
  list(peer);
}

void JobLinks::forget_credits(uint32_t peer, uint32_t tensor, uint32_t frames) {
  Incoming& in = peers_.at(peer).in;
  in.credits_max -= frames;
  for (size_t left = in.credits.size(); left > 0; --left) {
    const FrameHeader credit = in.credits.front();
    in.credits.pop();
    if (credit.tensor != tensor) in.credits.push(credit);
  }
}

// Ids begin at 1, so an unused frame belongs to no tensor. Control plane only: it checks every
// frame.
std::set<uint32_t> JobLinks::sending_among(std::span<const uint32_t> tensors) const {
  const std::set<uint32_t> wanted(tensors.begin(), tensors.end());
  std::set<uint32_t> found;
  for (const Peer& peer : peers_)
    for (const Waiting& frame : peer.out.frames)
      if (const uint32_t id = frame.record.operation.tensor; id != 0 && wanted.contains(id))
        found.insert(id);
  return found;
}

void JobLinks::add_peers(const std::vector<std::string>& addresses) {
  addresses_.insert(addresses_.end(), addresses.begin(), addresses.end());
  peers_.resize(addresses_.size());
  active_.reserve(peers_.size());
}

void JobLinks::list(uint32_t peer) {
  if (!peers_[peer].listed) active_.push_back(peer);
  peers_[peer].listed = true;
}

// ---- links

FrameHeader JobLinks::hello() const {
  FrameHeader header;
  header.kind = static_cast<uint8_t>(FrameKind::kHello);
  header.source = identity_.agent_index;
  header.job = identity_.job;
  header.epoch = identity_.epoch;
  header.total = identity_.link_key;
  return header;
}

Status JobLinks::connect(uint32_t peer) {
  Outgoing& out = peers_[peer].out;
  Result<LinkId> link = transport_.connect(addresses_[peer], hello());
  if (!link.ok()) return link.status();
  out.link = link.value();
  out.open = true;
  add_link(out.link, peer, true);
  return lend_slots(out.link, out.slots, kCreditSlots, kCreditSlotBytes);
}

Status JobLinks::accept(LinkId link, const FrameHeader& opener) {
  const uint32_t peer = opener.source;
  if (opener.total != identity_.link_key || opener.epoch != identity_.epoch ||
      peer >= peers_.size() || peer == identity_.agent_index || dropped(peer) ||
      !peers_[peer].in.slots.memory.empty())
    return error("D602", "a link that claims to be agent " + std::to_string(peer) + " of job " +
                             std::to_string(opener.job) + " was refused");
  Incoming& in = peers_[peer].in;
  GRADBUS_RETURN_IF_ERROR(lend_slots(link, in.slots, kDataSlots, kDataSlotBytes));
  in.link = link;
  in.open = true;
  add_link(link, peer, false);
  return {};
}

void JobLinks::add_link(LinkId link, uint32_t peer, bool outgoing) {
  if (roles_.size() <= link.index) roles_.resize(link.index + 1);
  roles_[link.index] = {peer, outgoing, true};
  ++open_links_;
}

const JobLinks::Role* JobLinks::role_of(LinkId link) const {
  return link.index < roles_.size() && roles_[link.index].known ? &roles_[link.index] : nullptr;
}

Status JobLinks::lend_slots(LinkId link, Slots& slots, uint64_t count, uint64_t slot_bytes) {
  const std::span<std::byte> memory = map_private(count * slot_bytes);
  if (memory.empty()) return error("S201", "no address space for the receive buffers of a link");
  Result<RegionId> region = transport_.register_memory(memory);
  if (!region.ok()) {
    munmap(memory.data(), memory.size());
    return region.status();
  }
  slots.memory = memory;
  slots.region = region.value();
  slots.slot_bytes = slot_bytes;
  slots.unposted.reserve(count);
  for (uint64_t token = 0; token < count; ++token) post_slot(link, slots, token);
  return {};
}

void JobLinks::post_slot(LinkId link, Slots& slots, uint64_t token) {
  const Slice slot{slots.region, token * slots.slot_bytes, slots.slot_bytes};
  if (transport_.post_receive(link, slot, token) == Code::kBusy) slots.unposted.push(token);
}

void JobLinks::post_again(LinkId link, Slots& slots) {
  for (size_t tries = slots.unposted.size(); tries > 0; --tries) {
    const uint64_t token = slots.unposted.front();
    slots.unposted.pop();
    post_slot(link, slots, token);
  }
}

void JobLinks::take_back(Slots& slots) {
  if (slots.memory.empty()) return;
  transport_.unregister_memory(slots.region);
  munmap(slots.memory.data(), slots.memory.size());
  slots = Slots();
}

void JobLinks::connected(LinkId link) {
  if (const Role* role = role_of(link); role != nullptr && role->outgoing)
    peers_[role->peer].out.up = !dropped(role->peer);
}

void JobLinks::close() {
  for (Peer& peer : peers_) {
    if (peer.out.open) transport_.disconnect(peer.out.link);
    if (peer.in.open) transport_.disconnect(peer.in.link);
    peer.out.up = false;
  }
  active_.clear();
}

void JobLinks::drop(uint32_t peer) {
  Peer& lost = peers_[peer];
  lost.dropped = true;
  if (lost.out.open) transport_.disconnect(lost.out.link);
  if (lost.in.open) transport_.disconnect(lost.in.link);
  lost.out.up = false;
}

bool JobLinks::take_unsent(uint32_t peer, SendRecord& record) {
  Outgoing& out = peers_[peer].out;
  if (out.waiting.empty()) return false;
  const uint32_t token = out.waiting.pop();
  --waiting_frames_;
  out.unused.push_back(token);
  record = out.frames[token].record;
  out.frames[token].record = {};
  return true;
}

void JobLinks::on_closed(LinkId link) {
  const Role role = *role_of(link);
  Peer& peer = peers_[role.peer];
  if (role.outgoing) {
    peer.out.open = peer.out.up = false;
  } else {
    peer.in.open = false;
  }
  roles_[link.index].known = false;
  --open_links_;
}

// ---- frames out

void JobLinks::send_data(uint32_t peer, const FrameHeader& header, Slice payload,
                         const SendRecord& record, uint32_t priority) {
  Outgoing& out = peers_[peer].out;
  GRADBUS_CHECK(!out.unused.empty());
  const uint32_t token = out.unused.back();
  out.unused.pop_back();
  out.frames[token] = {header, payload, record};
  out.waiting.push(token, priority);
  queued_.observe(waiting_frames_);
  ++waiting_frames_;
}

void JobLinks::send_credit(uint32_t peer, const FrameHeader& header) {
  peers_[peer].in.credits.push(header);
}

size_t JobLinks::flush() {
  size_t sent = 0;
  for (const uint32_t peer : active_) {
    Peer& to = peers_[peer];
    sent += flush_credits(to.in);
    sent += flush_data(to.out);
    if (to.in.open) post_again(to.in.link, to.in.slots);
    if (to.out.open) post_again(to.out.link, to.out.slots);
  }
  return sent;
}

size_t JobLinks::flush_data(Outgoing& out) {
  size_t sent = 0;
  for (; out.up && !out.waiting.empty(); ++sent) {
    const uint32_t token = out.waiting.front();
    const Waiting& frame = out.frames[token];
    if (out.waiting.is_ordered() && out.posted_bytes >= kOrderedBytesMax) break;
    const Code code = transport_.post_send(out.link, frame.header, frame.payload, token);
    GRADBUS_CHECK(code != Code::kInvalid);
    if (code != Code::kOk) break;
    out.posted_bytes += frame.payload.bytes;
    out.waiting.pop();
    --waiting_frames_;
  }
  return sent;
}

size_t JobLinks::flush_credits(Incoming& in) {
  size_t sent = 0;
  for (; in.open && !in.credits.empty(); ++sent) {
    if (transport_.post_send(in.link, in.credits.front(), {}, kCreditToken) != Code::kOk) break;
    in.credits.pop();
  }
  return sent;
}

SendRecord JobLinks::take_sent(LinkId link, uint64_t token) {
  Outgoing& out = peers_[peer_of(link)].out;
  GRADBUS_CHECK(token < out.frames.size());
  out.posted_bytes -= out.frames[token].payload.bytes;
  out.unused.push_back(static_cast<uint32_t>(token));
  return std::exchange(out.frames[token].record, {});
}

// ---- frames in

std::span<const std::byte> JobLinks::frame(LinkId link, uint64_t token, uint64_t bytes) const {
  const Role& role = *role_of(link);
  const Peer& peer = peers_[role.peer];
  return role.outgoing ? peer.out.slots.memory.subspan(token * kCreditSlotBytes, bytes)
                       : peer.in.slots.memory.subspan(token * kDataSlotBytes, bytes);
}

uint32_t JobLinks::buffer_of(LinkId link, uint64_t token) const {
  return static_cast<uint32_t>(peer_of(link) * kDataSlots + token);
}

std::span<const std::byte> JobLinks::payload(uint32_t buffer) const {
  const std::span<const std::byte> slot = peers_[buffer / kDataSlots].in.slots.memory.subspan(
      buffer % kDataSlots * kDataSlotBytes, kDataSlotBytes);
  FrameHeader header;
  std::memcpy(&header, slot.data(), sizeof(header));
  return slot.subspan(sizeof(header), header.length);
}

Slice JobLinks::payload_slice(uint32_t buffer) const {
  const Slots& slots = peers_[buffer / kDataSlots].in.slots;
  return {slots.region, buffer % kDataSlots * kDataSlotBytes + sizeof(FrameHeader),
          payload(buffer).size()};
}

uint32_t JobLinks::buffers_max() const { return static_cast<uint32_t>(peers_.size() * kDataSlots); }

// The link may have ended since.
void JobLinks::release(uint32_t buffer) {
  Incoming& in = peers_[buffer / kDataSlots].in;
  if (in.open) post_slot(in.link, in.slots, buffer % kDataSlots);
}

void JobLinks::release_credit(LinkId link, uint64_t token) {
  post_slot(link, peers_[peer_of(link)].out.slots, token);
}

}  // namespace gradbus
