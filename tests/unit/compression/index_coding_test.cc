// Bytes worked by hand, round trips, sizes against the entropy bound, and bytes of a hostile peer.
#include "compression/index_coding.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "compression/kernels/select/golomb.h"
#include "tests/unit/compression/each_target.h"

namespace gradbus {
namespace {

using Indices = std::vector<uint32_t>;
using Bytes = std::vector<uint8_t>;

constexpr IndexCode kCodes[] = {IndexCode::kRaw, IndexCode::kBitmap, IndexCode::kStreamVByte,
                                IndexCode::kGolomb};

Bytes encode(IndexCode code, const Indices& indices, size_t count) {
  Bytes bytes(index_bytes(code, indices, count));
  EXPECT_EQ(encode_indices(code, indices, count, std::as_writable_bytes(std::span(bytes))),
            bytes.size());
  return bytes;
}

bool valid(IndexCode code, const Bytes& bytes, size_t entries, size_t count) {
  return valid_indices(code, std::as_bytes(std::span(bytes)), entries, count);
}

// Reads in blocks of an odd size, so that blocks end in the middle of words and control bytes.
Indices decode(IndexCode code, const Bytes& bytes, size_t entries, size_t count) {
  IndexReader reader(code, std::as_bytes(std::span(bytes)), entries, count);
  Indices indices;
  uint32_t block[7];
  while (const size_t got = reader.next(block, 7))
    indices.insert(indices.end(), block, block + got);
  return indices;
}

Indices random_indices(size_t count, double density, uint64_t seed) {
  std::mt19937_64 random(seed);
  Indices indices;
  for (uint32_t i = 0; i < count; ++i)
    if (std::generate_canonical<double, 53>(random) < density) indices.push_back(i);
  return indices;
}

// ---- bytes by hand ------------------------------------------------------------------------------

// Gaps 0, 2, 5.
TEST(IndexCoding, RawBitmapAndStreamVByteByHand) {
  const Indices indices{0, 3, 9};
  EXPECT_EQ(encode(IndexCode::kRaw, indices, 16), (Bytes{0, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0}));
  EXPECT_EQ(encode(IndexCode::kBitmap, indices, 16), (Bytes{0x09, 0x02}));
  EXPECT_EQ(encode(IndexCode::kStreamVByte, indices, 16), (Bytes{0x00, 0, 2, 5}));
}

// Gaps 5, 300 = 0x012c, 0x010000: control 0 | 1 << 2 | 2 << 4.
TEST(IndexCoding, StreamVByteLengthsByHand) {
  EXPECT_EQ(encode(IndexCode::kStreamVByte, {5, 306, 65843}, 100000),
            (Bytes{0x24, 0x05, 0x2c, 0x01, 0x00, 0x00, 0x01}));
}

// m = round(0.693 * 16 / 3 = 3.7) = 4: rests in 2 bits. Gap 0: 1 00; 2: 1 01; 5 = 4 + 1: 0 1 10
// (low bits first).
TEST(IndexCoding, GolombByHandPowerOfTwo) {
  EXPECT_EQ(golomb_divisor(16, 3), 4u);
  EXPECT_EQ(encode(IndexCode::kGolomb, {0, 3, 9}, 16), (Bytes{0b10101001, 0b01}));
}

// m = round(0.693 * 13 / 3 = 3.004) = 3: rest 0 is 0, rest 1 is 1 0, rest 2 is 1 1. Gap 1: 1 1 0;
// 2: 1 1 1; 7 = 2 * 3 + 1: 0 0 1 1 0.
TEST(IndexCoding, GolombByHandOtherDivisor) {
  EXPECT_EQ(golomb_divisor(13, 3), 3u);
  EXPECT_EQ(encode(IndexCode::kGolomb, {1, 4, 12}, 13), (Bytes{0b00111011, 0b011}));
}

TEST(IndexCoding, GolombDivisorOfExtremes) {
  EXPECT_EQ(golomb_divisor(0, 0), 1u);
  EXPECT_EQ(golomb_divisor(10, 10), 1u);
  EXPECT_EQ(golomb_divisor(size_t{1} << 31, 1), 1488519168u);  // 2^31 * 45426 / 2^16, exactly
}

// ---- round trips --------------------------------------------------------------------------------

TEST(IndexCoding, RoundTripsAtEveryDensity) {
  for (const size_t count : {1u, 7u, 8u, 63u, 64u, 65u, 1000u, 4099u, 100003u}) {
    for (const double density : {0.0, 0.0003, 0.01, 0.1, 0.2, 0.3, 0.5, 0.9, 1.0}) {
      const Indices indices = random_indices(count, density, count);
      for (const IndexCode code : kCodes) {
        SCOPED_TRACE(testing::Message() << count << " at " << density << " code " << int(code));
        const Bytes bytes = encode(code, indices, count);
        EXPECT_EQ(decode(code, bytes, indices.size(), count), indices);
        EXPECT_TRUE(valid(code, bytes, indices.size(), count));
      }
      const IndexCode best = smallest_index_code(indices, count);
      for (const IndexCode code : kCodes)
        EXPECT_LE(index_bytes(best, indices, count), index_bytes(code, indices, count));
      EXPECT_LE(index_bytes(best, indices, count), index_bytes_max(indices.size(), count));
    }
  }
}

TEST(IndexCoding, RoundTripsTheEndsOfTheLargestPartition) {
  const size_t count = size_t{1} << 31;
  for (const Indices& indices :
       {Indices{0}, Indices{0x7fffffff}, Indices{0, 0x7fffffff}, Indices{1, 2, 3, 0x7ffffffe}}) {
    for (const IndexCode code : {IndexCode::kRaw, IndexCode::kStreamVByte, IndexCode::kGolomb}) {
      const Bytes bytes = encode(code, indices, count);
      EXPECT_EQ(decode(code, bytes, indices.size(), count), indices) << int(code);
      EXPECT_TRUE(valid(code, bytes, indices.size(), count)) << int(code);
    }
  }
}

// All gaps there are around multiples of divisors of every size.
TEST(IndexCoding, GolombDividesExactly) {
  std::mt19937_64 random(3);
  for (uint32_t round = 0; round < 20000; ++round) {
    const size_t count = 1 + random() % (size_t{1} << (1 + random() % 31));
    const uint32_t divisor = golomb_divisor(count, 1);
    const uint64_t gap = random() % 3 * divisor + random() % 3 - 1;
    if (gap >= count) continue;
    const Indices indices{static_cast<uint32_t>(gap)};
    EXPECT_EQ(decode(IndexCode::kGolomb, encode(IndexCode::kGolomb, indices, count), 1, count),
              indices);
  }
}

// Entries are read three at a time where they fit a word of 57 bits: about 19 bits each are on the
// verge of it, from every bit of a byte.
TEST(IndexCoding, GolombReadsEntriesOfEveryLength) {
  std::mt19937 random(11);
  for (uint32_t mean = 1; mean <= uint32_t{1} << 22; mean *= 2) {
    Indices indices;
    uint64_t following = 0;
    for (size_t i = 0; i < 300; ++i) {
      const uint32_t gap = random() % 50 == 0 ? 40 * mean : random() % (2 * mean);
      indices.push_back(static_cast<uint32_t>(following + gap));
      following += uint64_t{gap} + 1;
    }
    const size_t count = 300 * size_t{mean} + following % mean;
    if (indices.back() >= count) indices.resize(100);
    if (indices.back() >= count) continue;
    const Bytes bytes = encode(IndexCode::kGolomb, indices, count);
    EXPECT_EQ(decode(IndexCode::kGolomb, bytes, indices.size(), count), indices) << mean;
    EXPECT_TRUE(valid(IndexCode::kGolomb, bytes, indices.size(), count)) << mean;
  }
}

// The code as index_coding.h puts it, a bit after the other.
Bytes golomb_by_definition(const Indices& indices, size_t count) {
  const uint32_t m = golomb_divisor(count, indices.size());
  const auto width = static_cast<uint32_t>(std::bit_width(m)) - 1;
  const uint32_t shorts = (2u << width) - m;
  std::vector<bool> bits;
  uint32_t following = 0;
  for (const uint32_t index : indices) {
    const uint32_t gap = index - following;
    bits.insert(bits.end(), gap / m, false);
    bits.push_back(true);
    const uint32_t rest = gap % m;
    const uint32_t word = rest < shorts ? rest : (rest + shorts) / 2;
    for (uint32_t i = 0; i < width; ++i) bits.push_back((word >> i & 1) != 0);
    if (rest >= shorts) bits.push_back((rest + shorts) % 2 != 0);
    following = index + 1;
  }
  Bytes bytes((bits.size() + 7) / 8);
  for (size_t i = 0; i < bits.size(); ++i)
    bytes[i / 8] = static_cast<uint8_t>(bytes[i / 8] | bits[i] << i % 8);
  return bytes;
}

// Of the gaps of a density, and of some that are long: those go another way.
TEST(IndexCoding, GolombIsItsDefinitionOnEachTarget) {
  on_each_target([] {
    for (const double density : {0.6, 0.3, 0.1, 0.03, 0.01, 0.001, 0.0001, 0.000003}) {
      for (const size_t entries : {0u, 1u, 2u, 3u, 16u, 17u, 18u, 255u, 256u, 257u, 258u, 1001u}) {
        std::mt19937_64 random(entries);
        std::geometric_distribution<uint32_t> gap(density);
        Indices indices;
        uint32_t next = 0;
        for (size_t i = 0; i < entries; ++i) {
          next += entries > 300 && i % 401 == 400 ? 1000000 : gap(random);
          indices.push_back(next++);
        }
        const size_t count = next + gap(random) + 1;
        SCOPED_TRACE(testing::Message() << entries << " at " << density);
        EXPECT_EQ(encode(IndexCode::kGolomb, indices, count), golomb_by_definition(indices, count));
      }
    }
  });
}

// Gaps around multiples of each divisor, where a quotient made in f32 is off by one.
TEST(IndexCoding, GolombDividesByVectors) {
  on_each_target([] {
    for (uint32_t n = 0; n < 4000; ++n) {  // small ones, and such whose gaps f32 rounds
      const uint32_t m = n < 2000 ? n + 1 : (1u << 24) - 1 - (n - 2000) * 2001;
      const GolombCode code(m);
      Indices indices{0};
      for (uint32_t multiple = 0; multiple < 2; ++multiple)
        for (const uint32_t off : {m - 1, m, m + 1, m / 2, m - 1, m / 3, m, 0u})
          indices.push_back(indices.back() + 1 + multiple * m + off);
      const size_t entries = indices.size() - 1;
      std::vector<uint64_t> words(entries / 2), lengths(entries / 2);
      std::vector<uint64_t> want_words(entries / 2), want_lengths(entries / 2);
      ASSERT_TRUE(golomb_pairs(code, &indices[1], entries, words.data(), lengths.data()));
      ASSERT_TRUE(
          golomb_pairs_scalar(code, &indices[1], entries, want_words.data(), want_lengths.data()));
      ASSERT_EQ(words, want_words) << m;
      ASSERT_EQ(lengths, want_lengths) << m;
    }
  });
}

// Into a buffer that has room for any gaps and into one that has not.
TEST(IndexCoding, TheSmallestIsWrittenAtOnce) {
  Indices clusters;
  for (uint32_t i = 0; i < 5000; ++i) clusters.push_back(i / 100 * 1'000'000 + i % 100);
  for (const double density : {0.0, 0.0002, 0.001, 0.02, 0.2, 0.5, 0.9}) {
    for (const bool clustered : {false, true}) {
      const size_t count = clustered ? 50'000'000 : 100'003;
      const Indices indices = clustered ? clusters : random_indices(count, density, 5);
      const IndexCode best = smallest_index_code(indices, count);
      const Bytes want = encode(best, indices, count);
      for (const size_t room : {want.size(), want.size() + 4 * indices.size() + 64}) {
        Bytes bytes(room);
        const EncodedIndices got =
            encode_smallest(indices, count, std::as_writable_bytes(std::span(bytes)));
        EXPECT_EQ(got.code, best);
        ASSERT_EQ(got.bytes, want.size());
        bytes.resize(got.bytes);
        EXPECT_EQ(bytes, want);
      }
    }
  }
}

// ---- sizes --------------------------------------------------------------------------------------

// count * H(density) bits, the least that random indices need on average.
double bound_bytes(size_t count, size_t entries) {
  const double p = static_cast<double>(entries) / static_cast<double>(count);
  return static_cast<double>(count) * -(p * std::log2(p) + (1 - p) * std::log2(1 - p)) / 8;
}

TEST(IndexCoding, IsWithinTwoPercentOfTheEntropyBound) {
  const size_t count = 4'000'000;
  for (const double density : {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2}) {
    const Indices indices = random_indices(count, density, 1);
    const IndexCode best = smallest_index_code(indices, count);
    EXPECT_EQ(best, IndexCode::kGolomb);
    const auto bytes = static_cast<double>(index_bytes(best, indices, count));
    EXPECT_LT(bytes, 1.02 * bound_bytes(count, indices.size())) << density;
  }
}

TEST(IndexCoding, TakesTheCodeThatFits) {
  EXPECT_EQ(smallest_index_code({}, 1000), IndexCode::kRaw);
  EXPECT_EQ(smallest_index_code(random_indices(1000, 0.6, 1), 1000), IndexCode::kBitmap);
  Indices clusters;  // 100 in a row every million: a byte and 2 bits each
  for (uint32_t c = 0; c < 50; ++c)
    for (uint32_t i = 0; i < 100; ++i) clusters.push_back(1'000'000 * c + i);
  EXPECT_EQ(smallest_index_code(clusters, 50'000'000), IndexCode::kStreamVByte);
  EXPECT_EQ(index_bytes(IndexCode::kStreamVByte, clusters, 50'000'000), 5000 + 49 * 2 + 1250);
}

// ---- hostile bytes ------------------------------------------------------------------------------

TEST(IndexCoding, RefusesOtherSizes) {
  const Indices indices = random_indices(1000, 0.05, 1);
  for (const IndexCode code : kCodes) {
    const Bytes good = encode(code, indices, 1000);
    Bytes shorter = good;
    shorter.pop_back();
    EXPECT_FALSE(valid(code, shorter, indices.size(), 1000)) << int(code);
    Bytes longer = good;
    longer.push_back(0);
    EXPECT_FALSE(valid(code, longer, indices.size(), 1000)) << int(code);
    EXPECT_FALSE(valid(code, {}, indices.size(), 1000)) << int(code);
  }
}

TEST(IndexCoding, RefusesAnotherNumberOfEntries) {
  const Indices indices = random_indices(1000, 0.05, 1);
  for (const IndexCode code : {IndexCode::kRaw, IndexCode::kBitmap, IndexCode::kStreamVByte}) {
    const Bytes good = encode(code, indices, 1000);
    EXPECT_FALSE(valid(code, good, indices.size() - 1, 1000)) << int(code);
    EXPECT_FALSE(valid(code, good, indices.size() + 1, 1000)) << int(code);
  }
}

// Golomb: as by hand above, with 2 instead of 1 as the last rest, which makes 13 of 12.
TEST(IndexCoding, RefusesIndicesFromCountOn) {
  const Indices indices{3, 999};
  for (const IndexCode code : {IndexCode::kRaw, IndexCode::kBitmap, IndexCode::kStreamVByte}) {
    const Bytes good = encode(code, indices, 1000);
    EXPECT_TRUE(valid(code, good, 2, 1000)) << int(code);
    EXPECT_FALSE(valid(code, good, 2, 999)) << int(code);
  }
  EXPECT_TRUE(valid(IndexCode::kGolomb, {0b00111011, 0b011}, 3, 13));
  EXPECT_FALSE(valid(IndexCode::kGolomb, {0b00111011, 0b111}, 3, 13));
}

TEST(IndexCoding, RefusesEqualAndFallingRawIndices) {
  EXPECT_FALSE(valid(IndexCode::kRaw, {3, 0, 0, 0, 3, 0, 0, 0}, 2, 10));
  EXPECT_FALSE(valid(IndexCode::kRaw, {3, 0, 0, 0, 2, 0, 0, 0}, 2, 10));
}

TEST(IndexCoding, RefusesPaddingThatIsNotZero) {
  EXPECT_TRUE(valid(IndexCode::kBitmap, {0x01, 0x02}, 2, 10));
  EXPECT_FALSE(valid(IndexCode::kBitmap, {0x01, 0x06}, 2, 10));
  EXPECT_TRUE(valid(IndexCode::kStreamVByte, {0x00, 0, 2, 5}, 3, 16));
  EXPECT_FALSE(valid(IndexCode::kStreamVByte, {0x40, 0, 2, 5}, 3, 16));
  EXPECT_TRUE(valid(IndexCode::kGolomb, {0b10101001, 0b01}, 3, 16));
  EXPECT_FALSE(valid(IndexCode::kGolomb, {0b10101001, 0b101}, 3, 16));
}

// Whatever the bytes: ascending, below count, no more than there are entries. Long runs of zeros
// and of ones are frequent, and so are sizes that do not fit.
TEST(IndexCoding, AnyBytesGiveAscendingIndices) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 20000; ++round) {
    const size_t count = 1 + random() % 300;
    const size_t entries = random() % (count + 1);
    Bytes bytes(random() % 100);
    for (uint8_t& byte : bytes)
      byte = random() % 3 == 0 ? 0 : random() % 4 == 0 ? 0xff : static_cast<uint8_t>(random());
    for (const IndexCode code : kCodes) {
      const Indices indices = decode(code, bytes, entries, count);
      ASSERT_LE(indices.size(), entries);
      uint64_t following = 0;
      for (const uint32_t index : indices) {
        ASSERT_GE(index, following);
        ASSERT_LT(index, count);
        following = uint64_t{index} + 1;
      }
      if (!valid(code, bytes, entries, count)) continue;
      ASSERT_EQ(indices.size(), entries);
    }
  }
}

}  // namespace
}  // namespace gradbus
