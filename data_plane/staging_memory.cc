#include "data_plane/staging_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "common/errors.h"

namespace gradbus {

StagingMemory::~StagingMemory() {
  if (bytes_.empty()) return;
  transport_.unregister_memory(region_);
  if (!borrowed_) munmap(bytes_.data(), bytes_.size());
}

Status StagingMemory::borrow(std::span<std::byte> memory) {
  const Result<RegionId> region = transport_.register_memory(memory);
  if (!region.ok()) return region.status();
  bytes_ = memory;
  region_ = region.value();
  borrowed_ = true;
  return {};
}

Status StagingMemory::map(size_t bytes, const std::string& what) {
  bytes = std::max<size_t>(bytes, 1);
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return error("S201", "no address space for " + what);
  const std::span<std::byte> memory(static_cast<std::byte*>(address), bytes);
  const Result<RegionId> region = transport_.register_memory(memory);
  if (!region.ok()) {
    munmap(address, bytes);
    return region.status();
  }
  bytes_ = memory;
  region_ = region.value();
  return {};
}

}  // namespace gradbus
