// The memory that a transport may access. It resolves a Slice to bytes, or rejects it. One thread
// owns it.
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
  // Outstanding posts keep their bytes; new ones are refused.
  void remove(RegionId region);
  bool holds(RegionId region) const {
    return region.index < regions_.size() && !regions_[region.index].empty();
  }

  // Returns the bytes of `slice`, or nothing if any of them is outside its region. An empty slice
  // needs no region.
  std::optional<std::span<std::byte>> resolve(const Slice& slice) const;

 private:
  std::vector<std::span<std::byte>> regions_;
  std::vector<uint32_t> free_;
};

}  // namespace gradbus
