#include "worker_agent/job_links.h"

#include <sys/mman.h>

#include <cstring>

#include "common/check.h"
#include "common/errors.h"

namespace gradbus {
namespace {

// Data slots bound what a predecessor can have under way; the kernel's socket buffers add to it.
constexpr uint64_t kDataSlots = 16;
constexpr uint64_t kCreditSlots = 16;
constexpr uint64_t kSlotBytes = (kReceiveSlotBytes + 127) / 128 * 128;
constexpr uint64_t kCreditSlotBytes = 128;
static_assert(kCreditSlotBytes >= sizeof(FrameHeader));
constexpr uint64_t kMemoryBytes = kDataSlots * kSlotBytes + kCreditSlots * kCreditSlotBytes;

std::span<std::byte> map_private(size_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  GRADBUS_CHECK(address != MAP_FAILED);
  return {static_cast<std::byte*>(address), bytes};
}

}  // namespace

JobLinks::JobLinks(Transport& transport, const LinkIdentity& identity)
    : transport_(transport), identity_(identity), memory_(map_private(kMemoryBytes)) {}

JobLinks::~JobLinks() { munmap(memory_.data(), memory_.size()); }

FrameHeader JobLinks::hello() const {
  FrameHeader header;
  header.kind = static_cast<uint8_t>(FrameKind::kHello);
  header.source = identity_.agent_index;
  header.job = identity_.job;
  header.epoch = identity_.epoch;
  header.total = identity_.link_key;
  return header;
}

Status JobLinks::open(const std::string& successor_address) {
  Result<RegionId> region = transport_.register_memory(memory_);
  if (!region.ok()) return region.status();
  region_ = region.value();
  Result<LinkId> link = transport_.connect(successor_address, hello());
  if (!link.ok()) return link.status();
  successor_ = link.value();
  successor_open_ = true;
  post_receives(successor_, kDataSlots, kCreditSlots);
  return {};
}

Status JobLinks::accept(LinkId link, const FrameHeader& opener) {
  const uint32_t expected = (identity_.agent_index + identity_.agents - 1) % identity_.agents;
  if (opener.total != identity_.link_key || opener.epoch != identity_.epoch ||
      opener.source != expected || predecessor_up_)
    return error("D602", "a link that claims to be agent " + std::to_string(opener.source) +
                             " of job " + std::to_string(opener.job) + " was refused");
  predecessor_ = link;
  predecessor_up_ = predecessor_open_ = true;
  post_receives(link, 0, kDataSlots);
  return {};
}

void JobLinks::close() {
  if (successor_open_) transport_.disconnect(successor_);
  if (predecessor_open_) transport_.disconnect(predecessor_);
  successor_up_ = predecessor_up_ = false;
}

void JobLinks::on_closed(LinkId link) {
  if (successor_open_ && link == successor_) successor_open_ = successor_up_ = false;
  if (predecessor_open_ && link == predecessor_) predecessor_open_ = predecessor_up_ = false;
  if (closed()) transport_.unregister_memory(region_);
}

void JobLinks::post_receives(LinkId link, uint64_t first_token, uint64_t count) {
  for (uint64_t token = first_token; token < first_token + count; ++token)
    (void)transport_.post_receive(link, slot(token), token);
}

Slice JobLinks::slot(uint64_t token) const {
  if (token < kDataSlots) return {region_, token * kSlotBytes, kSlotBytes};
  return {region_, kDataSlots * kSlotBytes + (token - kDataSlots) * kCreditSlotBytes,
          kCreditSlotBytes};
}

LinkId JobLinks::link_of(uint64_t token) const {
  return token < kDataSlots ? predecessor_ : successor_;
}

void JobLinks::release(uint64_t token) {
  (void)transport_.post_receive(link_of(token), slot(token), token);
}

std::span<const std::byte> JobLinks::frame(uint64_t token, uint64_t bytes) const {
  return memory_.subspan(slot(token).offset, bytes);
}

std::span<const std::byte> JobLinks::payload(uint32_t buffer) const {
  FrameHeader header;
  std::memcpy(&header, memory_.data() + slot(buffer).offset, sizeof(header));
  return memory_.subspan(slot(buffer).offset + sizeof(header), header.length);
}

void JobLinks::send_data(const FrameHeader& header, Slice payload, const SendRecord& record) {
  data_.push_back({header, payload, record});
}

void JobLinks::send_credit(const FrameHeader& header) { credits_.push_back(header); }

Code JobLinks::post_one(const Waiting& waiting) {
  if (free_records_.empty()) {
    free_records_.push_back(static_cast<uint32_t>(in_flight_.size()));
    in_flight_.emplace_back();
  }
  const uint32_t token = free_records_.back();
  const Code code = transport_.post_send(successor_, waiting.header, waiting.payload, token);
  if (code != Code::kOk) return code;
  in_flight_[token] = waiting.record;
  free_records_.pop_back();
  return code;
}

size_t JobLinks::flush() {
  size_t sent = 0;
  while (predecessor_up_ && !credits_.empty() &&
         transport_.post_send(predecessor_, credits_.front(), {}, kCreditToken) == Code::kOk) {
    credits_.pop_front();
    ++sent;
  }
  while (successor_up_ && !data_.empty() && post_one(data_.front()) == Code::kOk) {
    data_.pop_front();
    ++sent;
  }
  return sent;
}

SendRecord JobLinks::take_sent(uint64_t token) {
  GRADBUS_CHECK(token < in_flight_.size());
  free_records_.push_back(static_cast<uint32_t>(token));
  return in_flight_[token];
}

}  // namespace gradbus
