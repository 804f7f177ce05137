// CRC32C (Castagnoli, RFC 3720): the checksum of frames and files. Pure, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gradbus {

// crc32c("123456789") is 0xE3069283; of nothing, `seed`. The CRC of a part is the seed of the next:
// crc32c(a + b) == crc32c(b, crc32c(a)).
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t seed = 0);

}  // namespace gradbus
