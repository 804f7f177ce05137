// The pages behind a part of a segment that this process has created. They can return to the system
// and come back as zeros, while all processes keep their mappings.
#pragma once

#include <cstdint>
#include <functional>

#include "common/segment.h"
#include "common/status.h"

namespace gradbus {

inline constexpr uint64_t kPageBytes = 4096;

// The unit in which pages are released.
uint64_t page_bytes_of(const Segment& segment);
// Releases these whole pages; they read as zeros from now on. Returns false, without a change,
// where the system does not support that.
bool give_back_pages(const Segment& segment, uint64_t offset, uint64_t bytes);
// Reserves the pages again. S201 when there is not enough memory. Calls `breathe` every 64 MiB.
Status restore_pages(const Segment& segment, uint64_t offset, uint64_t bytes,
                     const std::function<void()>& breathe);

}  // namespace gradbus
