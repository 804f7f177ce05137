#include "common/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace gradbus {
namespace {

constexpr size_t kPieceBytesMax = size_t{1} << 30;  // ISA-L takes the length as an int

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t seed) {
  // ISA-L works on the bare shift register; the standard inverts it before and after. Its pointer
  // is not const but it only reads.
  uint32_t inverted = ~seed;
  while (!bytes.empty()) {
    const size_t piece = std::min(bytes.size(), kPieceBytesMax);
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
    inverted = crc32_iscsi(data, static_cast<int>(piece), inverted);
    bytes = bytes.subspan(piece);
  }
  return ~inverted;
}

}  // namespace gradbus
