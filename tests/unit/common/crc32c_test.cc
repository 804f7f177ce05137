// Tests of CRC32C with the vectors of RFC 3720 B.4 and a bit-by-bit computation.
#include "common/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace gradbus {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// The definition: divide by the Castagnoli polynomial 0x1EDC6F41, bits reflected (0x82F63B78).
uint32_t crc32c_bitwise(std::span<const std::byte> bytes) {
  uint32_t remainder = ~0u;
  for (const std::byte byte : bytes) {
    remainder ^= static_cast<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? 0x82f63b78u : 0u);
    }
  }
  return ~remainder;
}

TEST(Crc32cTest, MatchesThePublishedVectors) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283u);
  std::vector<std::byte> block(32, std::byte{0});
  EXPECT_EQ(crc32c(block), 0x8a9136aau);
  block.assign(32, std::byte{0xff});
  EXPECT_EQ(crc32c(block), 0x62a8ab43u);
  for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc32c(block), 0x46dd794eu);
}

TEST(Crc32cTest, OfNothingIsTheSeed) {
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c({}, 0x12345678u), 0x12345678u);
}

TEST(Crc32cTest, MatchesTheDefinitionAtEveryLengthAndOffset) {
  std::vector<std::byte> data(1100);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 131 + i / 7);
  for (size_t length = 0; length <= 1024; length += length < 130 ? 1 : 89) {
    for (size_t offset = 0; offset < 17; ++offset) {
      const auto part = std::span(data).subspan(offset, length);
      EXPECT_EQ(crc32c(part), crc32c_bitwise(part)) << length << " at " << offset;
    }
  }
}

TEST(Crc32cTest, PartsContinueFromTheirSeed) {
  const std::string_view text = "a gradient goes by bus";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const uint32_t first = crc32c(bytes_of(text.substr(0, cut)));
    EXPECT_EQ(crc32c(bytes_of(text.substr(cut)), first), crc32c(bytes_of(text))) << cut;
  }
}

}  // namespace
}  // namespace gradbus
