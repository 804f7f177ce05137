// Private memory from which the transport may send and into which it may receive: payloads of a
// compressed tensor, or the data of a shard. It starts as zeros; untouched pages cost nothing.
// Engine thread only.
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

  // Call it once. S201, naming `what`, when address space runs out.
  Status map(size_t bytes, const std::string& what);
  // Instead of map(), once: uses memory whose owner outlives this object.
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
