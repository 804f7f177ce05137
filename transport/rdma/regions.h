// The registered memory of one transport. It resolves a Slice to bytes and their local key, or
// rejects it. The transport's thread owns it.
//
// A registration lives as long as a post holds it, even after its removal. So outstanding posts
// keep their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/rdma/device.h"
#include "transport/transport.h"

namespace gradbus {

struct RegisteredBytes {
  std::span<std::byte> bytes;
  uint32_t key = 0;     // for this device only; never sent to a peer
  uint32_t region = 0;  // to hold and release; kNoRegion for no bytes

  static constexpr uint32_t kNoRegion = UINT32_MAX;
};

class RdmaRegions {
 public:
  explicit RdmaRegions(const RdmaDevice& device) : device_(device) {}

  // Returns GB-D606 on failure.
  Result<RegionId> add(std::span<std::byte> memory);
  void remove(RegionId region);

  std::optional<RegisteredBytes> resolve(const Slice& slice) const;
  void hold(const RegisteredBytes& bytes);
  void let_go(const RegisteredBytes& bytes);

 private:
  struct Region {
    std::span<std::byte> memory;
    Verbs<ibv_mr> registration;
    uint32_t holders = 0;
    bool removed = false;
  };

  void free(uint32_t index);

  const RdmaDevice& device_;
  std::vector<Region> regions_;
  std::vector<uint32_t> unused_;
};

}  // namespace gradbus
