// Private memory that the transport may send from and receive into: payloads of a compressed
// tensor, what a shard holds. Zeros at first; pages that nothing has touched cost nothing. Engine
// thread only.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "common/status.h"
#include "transport/transport.h"

namespace gradbus {

class StagingMemory {
 public:
  explicit StagingMemory(Transport& transport) : transport_(transport) {}
  ~StagingMemory();
  StagingMemory(const StagingMemory&) = delete;
  StagingMemory& operator=(const StagingMemory&) = delete;

  // Once. S201, naming `what`, when there is no address space.
  Status map(size_t bytes, const std::string& what);
  // Or, once: memory of somebody who outlives this.
  Status borrow(std::span<std::byte> memory);
  std::span<std::byte> bytes() const { return bytes_; }
  RegionId region() const { return region_; }

 private:
  Transport& transport_;
  std::span<std::byte> bytes_;
  RegionId region_;
  bool borrowed_ = false;
};

}  // namespace gradbus
