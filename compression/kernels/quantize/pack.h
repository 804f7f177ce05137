// Packs codes of 2 or 4 bits, one per byte, and unpacks them. Element i is in byte i / k from bit
// (i % k) * bits on, with k = 8 / bits. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradbus {

constexpr size_t packed_bytes(uint32_t bits, size_t count) { return (count * bits + 7) / 8; }

// `codes` are below 2^bits. The bits after the last code become 0.
void pack_codes(uint32_t bits, const uint8_t* codes, size_t count, uint8_t* packed);
void pack_codes_scalar(uint32_t bits, const uint8_t* codes, size_t count, uint8_t* packed);

void unpack_codes(uint32_t bits, const uint8_t* packed, size_t count, uint8_t* codes);
void unpack_codes_scalar(uint32_t bits, const uint8_t* packed, size_t count, uint8_t* codes);

}  // namespace gradbus
