// The pages behind a part of a segment that this process has created: they can go back to the
// system and come again, as zeros, while all processes keep their mappings.
#pragma once

#include <cstdint>
#include <functional>

#include "common/segment.h"
#include "common/status.h"

namespace gradbus {

// Pages come and go in units of this.
uint64_t page_bytes_of(const Segment& segment);
// These whole pages go back; they read as zeros from now on. False where the system does not do
// that: nothing has changed then.
bool give_back_pages(const Segment& segment, uint64_t offset, uint64_t bytes);
// Reserves pages again. S201 when there is not enough memory. `breathe` is called every 64 MiB.
Status restore_pages(const Segment& segment, uint64_t offset, uint64_t bytes,
                     const std::function<void()>& breathe);

}  // namespace gradbus
