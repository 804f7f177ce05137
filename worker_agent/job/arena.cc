#include "worker_agent/job/arena.h"

#include <algorithm>
#include <cstring>

#include "common/errors.h"
#include "worker_agent/job/segment_pages.h"

namespace gradbus {
namespace {

using Extent = Extents::Extent;

// Room for a few hundred small tensors, so that the first ad-hoc operations of a job need no new
// segment.
constexpr uint64_t kFirstSegmentBytes = 1u << 20;
// Each segment is a descriptor and a mapping of the agent and of each rank, until the job ends. So
// an arena that is large, or grows again after memory was freed, grows by more than is asked.
constexpr uint64_t kSpareBytesMax = 64u << 20;
constexpr uint64_t kPartOfTotal = 16;
constexpr uint64_t kPartOfFreed = 4;
// What the agent itself may still need when a container is nearly full.
constexpr uint64_t kContainerReserveBytes = 16u << 20;
// Clearing takes place at a few GB/s, and the conductor must renew its lease meanwhile.
constexpr uint64_t kClearStepBytes = 64u << 20;

// These saturate at the largest number instead of wrapping to 0.
constexpr uint64_t add(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}
constexpr uint64_t multiply(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}
constexpr uint64_t round_down(uint64_t bytes, uint64_t unit) { return bytes / unit * unit; }
constexpr uint64_t round_up(uint64_t bytes, uint64_t unit) {
  return round_down(add(bytes, unit - 1), unit);
}

std::string mib(uint64_t bytes) {
  return std::to_string(add(bytes, (1u << 20) - 1) >> 20) + " MiB";
}

}  // namespace

Status fits_container(const ShmQuota& quota, const std::string& job, uint64_t bytes) {
  const auto limit = quota.container ? quota.container() : std::nullopt;
  if (!limit || add(bytes, kContainerReserveBytes) <= limit->left()) return {};
  return error("S203", "job \"" + job + "\" asks for " + mib(bytes) +
                           " more memory of this node's agent; its container has " +
                           mib(limit->left()) + " left of " + mib(limit->bytes_max) + " (" +
                           limit->file + ")");
}

Arena::Arena(std::string job, uint32_t local_size, uint32_t world_size, ShmQuota& quota)
    : job_(std::move(job)), local_size_(local_size), world_size_(world_size), quota_(quota) {}

Arena::~Arena() {
  for (size_t i = 0; i < segments_.size(); ++i)
    quota_.bytes_used -= segments_[i]->bytes() - memory_[i].holes.bytes();
}

Status Arena::open() {
  GRADBUS_RETURN_IF_ERROR(grow(kFirstSegmentBytes));
  memory_.front().free.erase({0, kJobWordBytes});
  return {};
}

// Huge pages may have used more than the quota.
uint64_t Arena::quota_left() const {
  return quota_.bytes_max - std::min(quota_.bytes_used, quota_.bytes_max);
}

Status Arena::refuse(uint64_t bytes) const {
  return error("S201", "job \"" + job_ + "\" asks for " + mib(bytes) + " more shared memory; " +
                           mib(quota_.bytes_used) + " of this agent's " + mib(quota_.bytes_max) +
                           " (--shm-bytes-max " + std::to_string(quota_.bytes_max) +
                           ") are in use");
}

Status Arena::grow(uint64_t bytes) {
  if (bytes > quota_left()) return refuse(bytes);
  bytes = round_up(bytes, kPageBytes);
  GRADBUS_RETURN_IF_ERROR(fits_container(quota_, job_, bytes));
  auto segment = Segment::create("gradbus:" + job_, bytes, quota_.breathe, quota_.huge_pages);
  if (!segment.ok()) return segment.status().with_context("job \"" + job_ + "\"");
  segments_.push_back(segment.take());
  quota_.bytes_used += segments_.back()->bytes();  // huge pages: more than asked
  memory_.emplace_back().free.insert({0, segments_.back()->bytes()});
  return {};
}

// Rank buffers or blocks: see proto/shm_layout.h.
uint64_t Arena::rank_buffers(const LocalReductionShape& shape) const {
  if (reduces(shape.kind)) return local_size_;
  return block_count(shape.kind, world_size_);
}

uint64_t Arena::stride(const LocalReductionShape& shape) const {
  const uint64_t bytes = multiply(shape.count, dtype_bytes(shape.dtype));
  if (bytes > kTensorBytesMax) return UINT64_MAX;
  return reduces(shape.kind) ? rank_buffer_stride(bytes) : round_up(bytes, kDataAlignBytes);
}

uint64_t Arena::bytes_needed(const LocalReductionShape& shape) const {
  return add(local_reduction_bytes(local_size_, shape.chunks),
             multiply(rank_buffers(shape), stride(shape)));
}

uint64_t Arena::bytes_free() const {
  uint64_t sum = 0;
  for (const Memory& memory : memory_) sum += memory.free.bytes();
  return sum;
}

// Chooses the oldest segment with room, and in it the smallest extent, so that free memory stays
// together.
template <typename Segments>
std::optional<Arena::Found> Arena::find(const Segments& segments, uint64_t bytes) {
  for (size_t i = 0; i < segments.size(); ++i)
    if (const auto extent = segments[i].free.best_fit(bytes)) return Found{i, *extent};
  return {};
}

Status Arena::reserve(std::span<const LocalReductionShape> shapes) {
  if (shapes.size() == 1 && find(memory_, bytes_needed(shapes[0]))) return {};
  struct Trial {
    Extents free;
  };
  std::vector<Trial> trial;
  for (const Memory& memory : memory_) trial.push_back({memory.free});
  uint64_t missing = 0;
  for (const LocalReductionShape& shape : shapes) {
    const uint64_t bytes = bytes_needed(shape);
    const auto found = find(trial, bytes);
    if (found) {
      trial[found->segment].free.erase({found->extent.begin, found->extent.begin + bytes});
    } else {
      missing = add(missing, bytes);
    }
  }
  if (missing == 0) return {};
  const uint64_t wanted = comfortable(missing);
  if (wanted == missing) return grow(missing);
  if (!grow(wanted).ok()) return grow(missing);
  const uint64_t end = segments_.back()->bytes();
  const Extent unused{std::min(missing, end), end};
  if (unused.bytes() > kFirstSegmentBytes) give_back_pages(segments_.size() - 1, {0, end}, unused);
  return {};
}

uint64_t Arena::comfortable(uint64_t bytes) const {
  if (keeps_pages_) return std::max(bytes, kFirstSegmentBytes);
  uint64_t total = 0;
  bool freed = false;  // a segment has no tensor any more, and was too small
  for (size_t i = 0; i < segments_.size(); ++i) {
    total += segments_[i]->bytes();
    freed = freed || memory_[i].free.bytes() == segments_[i]->bytes();
  }
  const uint64_t part = std::min(total / kPartOfTotal, kSpareBytesMax);
  return std::max({freed ? add(bytes, bytes / kPartOfFreed) : bytes, part, kFirstSegmentBytes});
}

Result<ArenaSlot> Arena::place(const LocalReductionShape& shape) {
  const uint64_t bytes = bytes_needed(shape);
  GRADBUS_RETURN_IF_ERROR(reserve({&shape, 1}));
  const Found found = *find(memory_, bytes);
  const Extent taken{found.extent.begin, found.extent.begin + bytes};
  GRADBUS_RETURN_IF_ERROR(make_usable(found.segment, taken));
  memory_[found.segment].free.erase(taken);
  ArenaSlot slot;
  slot.segment = static_cast<uint32_t>(found.segment);
  slot.local_reduction_offset = taken.begin;
  slot.data_offset = taken.begin + local_reduction_bytes(local_size_, shape.chunks);
  slot.data_stride = stride(shape);
  return slot;
}

// Reserves pages for holes and clears used memory.
Status Arena::make_usable(size_t index, Extent extent) {
  Memory& memory = memory_[index];
  const Segment& segment = *segments_[index];
  std::vector<Extent> holes;
  uint64_t bytes = 0;
  const uint64_t page = page_bytes_of(segment);
  const Extent pages{round_down(extent.begin, page), round_up(extent.end, page)};
  memory.holes.each_in(pages, [&](Extent hole) { holes.push_back(hole), bytes += hole.bytes(); });
  if (bytes > quota_left()) return refuse(bytes);
  for (const Extent& hole : holes) {
    if (Status full = restore_pages(segment, hole.begin, hole.bytes(), quota_.breathe); !full.ok())
      return full.with_context("job \"" + job_ + "\"");
    memory.holes.erase(hole);
    quota_.bytes_used += hole.bytes();
  }
  memory.dirty.each_in(extent, [&](Extent dirty) {
    for (uint64_t at = dirty.begin; at < dirty.end; at += kClearStepBytes) {
      std::memset(segment.at(at), 0, std::min(kClearStepBytes, dirty.end - at));
      if (quota_.breathe) quota_.breathe();
    }
  });
  memory.dirty.erase(extent);
  return {};
}

void Arena::free(const ArenaSlot& slot, const LocalReductionShape& shape) {
  const Extent freed{slot.local_reduction_offset,
                     slot.local_reduction_offset + bytes_needed(shape)};
  Memory& memory = memory_[slot.segment];
  const Extent whole = memory.free.insert(freed);
  memory.dirty.insert(freed);
  if (!keeps_pages_) give_back_pages(slot.segment, whole, freed);
}

// Releases the whole pages that have become free. That includes the pages shared with neighbours if
// those are free too.
void Arena::give_back_pages(size_t index, Extent whole, Extent freed) {
  Memory& memory = memory_[index];
  const Segment& segment = *segments_[index];
  const uint64_t page = page_bytes_of(segment);
  const Extent pages{std::max(round_up(whole.begin, page), round_down(freed.begin, page)),
                     std::min(round_down(whole.end, page), round_up(freed.end, page))};
  if (pages.begin >= pages.end || !gradbus::give_back_pages(segment, pages.begin, pages.bytes()))
    return;
  uint64_t known = 0;
  memory.holes.each_in(pages, [&](Extent hole) { known += hole.bytes(); });
  quota_.bytes_used -= pages.bytes() - known;
  memory.holes.insert(pages);
  memory.dirty.erase(pages);
}

}  // namespace gradbus
