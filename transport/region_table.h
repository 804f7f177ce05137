// The memory a transport may touch: turns a Slice into bytes, or refuses it. One thread owns it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "transport/transport.h"

namespace gradbus {

class RegionTable {
 public:
  RegionId add(std::span<std::byte> memory);
  // Posts that are outstanding keep the bytes they were given; new ones are refused.
  void remove(RegionId region);
  bool holds(RegionId region) const {
    return region.index < regions_.size() && !regions_[region.index].empty();
  }

  // The bytes of `slice`; nothing when any of them lies outside its region. An empty slice needs no
  // region.
  std::optional<std::span<std::byte>> resolve(const Slice& slice) const;

 private:
  std::vector<std::span<std::byte>> regions_;
  std::vector<uint32_t> free_;
};

}  // namespace gradbus
