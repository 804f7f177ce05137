#include "transport/rdma/regions.h"

#include <utility>

namespace gradbus {

Result<RegionId> RdmaRegions::add(std::span<std::byte> memory) {
  Region region{memory, Verbs<ibv_mr>(nullptr, device_.verbs().dereg_mr), 0, false};
  if (!memory.empty()) {
    Result<Verbs<ibv_mr>> registration = device_.register_memory(memory);
    GRADBUS_RETURN_IF_ERROR(registration.status());
    region.registration = registration.take();
  }
  if (unused_.empty()) {
    regions_.push_back(std::move(region));
    return RegionId{static_cast<uint32_t>(regions_.size() - 1)};
  }
  const uint32_t index = unused_.back();
  unused_.pop_back();
  regions_[index] = std::move(region);
  return RegionId{index};
}

void RdmaRegions::remove(RegionId id) {
  if (id.index >= regions_.size() || regions_[id.index].removed) return;
  regions_[id.index].removed = true;
  if (regions_[id.index].holders == 0) free(id.index);
}

void RdmaRegions::free(uint32_t index) {
  regions_[index].registration.reset();
  regions_[index].memory = {};
  unused_.push_back(index);
}

std::optional<RegisteredBytes> RdmaRegions::resolve(const Slice& slice) const {
  if (slice.bytes == 0) return RegisteredBytes{{}, 0, RegisteredBytes::kNoRegion};
  if (slice.region.index >= regions_.size()) return std::nullopt;
  const Region& region = regions_[slice.region.index];
  if (region.removed || slice.offset > region.memory.size() ||
      slice.bytes > region.memory.size() - slice.offset)
    return std::nullopt;
  return RegisteredBytes{region.memory.subspan(slice.offset, slice.bytes),
                         region.registration->lkey, slice.region.index};
}

void RdmaRegions::hold(const RegisteredBytes& bytes) {
  if (bytes.region != RegisteredBytes::kNoRegion) ++regions_[bytes.region].holders;
}

void RdmaRegions::let_go(const RegisteredBytes& bytes) {
  if (bytes.region == RegisteredBytes::kNoRegion) return;
  Region& region = regions_[bytes.region];
  if (--region.holders == 0 && region.removed) free(bytes.region);
}

}  // namespace gradbus
