#include "transport/region_table.h"

namespace gradbus {

RegionId RegionTable::add(std::span<std::byte> memory) {
  if (free_.empty()) {
    regions_.push_back(memory);
    return RegionId{static_cast<uint32_t>(regions_.size() - 1)};
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  regions_[index] = memory;
  return RegionId{index};
}

void RegionTable::remove(RegionId region) {
  if (region.index >= regions_.size() || regions_[region.index].empty()) return;
  regions_[region.index] = {};
  free_.push_back(region.index);
}

std::optional<std::span<std::byte>> RegionTable::resolve(const Slice& slice) const {
  if (slice.bytes == 0) return std::span<std::byte>{};
  if (slice.region.index >= regions_.size()) return std::nullopt;
  const std::span<std::byte> memory = regions_[slice.region.index];
  if (slice.offset > memory.size() || slice.bytes > memory.size() - slice.offset) {
    return std::nullopt;
  }
  return memory.subspan(slice.offset, slice.bytes);
}

}  // namespace gradbus
