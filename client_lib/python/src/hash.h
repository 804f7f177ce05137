// A hash of bytes for comparing replicas: 64 bits, the same on every processor of one byte order.
//
// It reads at the rate of memory (four independent lanes of multiply and rotate). It finds
// accidents, not attacks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gradbus::python {

uint64_t hash_bytes(std::span<const std::byte> bytes);

}  // namespace gradbus::python
