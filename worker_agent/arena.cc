#include "worker_agent/arena.h"

#include <algorithm>

#include "common/errors.h"

namespace gradbus {
namespace {

// Room for a few hundred small tensors, so that a job's first ad-hoc operations grow nothing.
constexpr uint64_t kFirstSegmentBytes = 1u << 20;
constexpr uint64_t kPageBytes = 4096;

constexpr uint64_t round_up(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::string mib(uint64_t bytes) { return std::to_string((bytes + (1u << 20) - 1) >> 20) + " MiB"; }

}  // namespace

Arena::Arena(std::string job, uint32_t local_size, uint32_t world_size, ShmQuota& quota)
    : job_(std::move(job)), local_size_(local_size), world_size_(world_size), quota_(quota) {}

Arena::~Arena() {
  for (const auto& segment : segments_) quota_.bytes_used -= segment->bytes();
}

Status Arena::open() {
  GRADBUS_RETURN_IF_ERROR(grow(kFirstSegmentBytes));
  used_ = kJobWordBytes;
  return {};
}

Status Arena::grow(uint64_t bytes) {
  bytes = round_up(bytes, kPageBytes);
  if (bytes > quota_.bytes_max - quota_.bytes_used)
    return error("S201", "job \"" + job_ + "\" asks for " + mib(bytes) + " more shared memory; " +
                             mib(quota_.bytes_used) + " of this agent's " + mib(quota_.bytes_max) +
                             " are in use");
  auto segment = Segment::create("gradbus:" + job_, bytes, quota_.breathe, quota_.huge_pages);
  if (!segment.ok()) return segment.status().with_context("job \"" + job_ + "\"");
  segments_.push_back(segment.take());
  quota_.bytes_used += segments_.back()->bytes();  // huge pages: more than asked
  used_ = 0;
  return {};
}

// Areas or blocks: see proto/shm_layout.h.
uint64_t Arena::areas(const CellShape& shape) const {
  if (reduces(shape.kind)) return local_size_;
  return block_count(shape.kind, world_size_);
}

uint64_t Arena::stride(const CellShape& shape) const {
  const uint64_t bytes = shape.count * dtype_bytes(shape.dtype);
  return reduces(shape.kind) ? rank_area_stride(bytes) : round_up(bytes, kDataAlignBytes);
}

uint64_t Arena::bytes_needed(const CellShape& shape) const {
  return cell_bytes(local_size_, shape.chunks) + areas(shape) * stride(shape);
}

Status Arena::reserve(uint64_t bytes) {
  return used_ + bytes <= segments_.back()->bytes() ? Status()
                                                    : grow(std::max(bytes, kFirstSegmentBytes));
}

Result<Placement> Arena::place(const CellShape& shape) {
  GRADBUS_RETURN_IF_ERROR(reserve(bytes_needed(shape)));
  Placement placement;
  placement.segment = static_cast<uint32_t>(segments_.size() - 1);
  placement.cell_offset = used_;
  placement.data_offset = used_ + cell_bytes(local_size_, shape.chunks);
  placement.data_stride = stride(shape);
  used_ += bytes_needed(shape);
  return placement;
}

}  // namespace gradbus
