// A set of ranks below a world size. It uses one bit per rank, because many tensors of a job may
// wait for ranks at the same time.
//
// Part of Registrations; pure.
#pragma once

#include <cstdint>
#include <vector>

#include "server/coordinator/members/text.h"

namespace gradbus {

class RankBits {
 public:
  explicit RankBits(uint32_t world_size) : bits_(world_size) {}

  bool contains(uint32_t rank) const { return bits_[rank]; }
  uint32_t size() const { return static_cast<uint32_t>(bits_.size()); }
  uint32_t count() const { return count_; }
  bool full() const { return count_ == bits_.size(); }
  void insert(uint32_t rank) {
    if (!bits_[rank]) ++count_;
    bits_[rank] = true;
  }

  // The ranks inside (`inside` true) or outside of the set.
  RankSet list(bool inside) const {
    RankSet set;
    for (uint32_t rank = 0; rank < bits_.size(); ++rank) {
      if (bits_[rank] == inside) set.insert(set.end(), rank);
    }
    return set;
  }

 private:
  std::vector<bool> bits_;
  uint32_t count_ = 0;
};

}  // namespace gradbus
