// rows: payloads by hand, parts of rows, what is refused, and its kernel on every SIMD target.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <utility>

#include "compression/index_coding.h"
#include "compression/kernels/vector/zeros.h"
#include "compression/payload.h"
#include "compression/registry.h"
#include "tests/unit/compression/each_target.h"

namespace gradbus {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using Payload = std::vector<std::byte>;

constexpr float kInf = std::numeric_limits<float>::infinity();

std::unique_ptr<Codec> make(const std::string& spec, size_t count, size_t columns = 0) {
  return make_codec(parse_compression(spec).take(), {.count_max = count, .columns = columns});
}

Payload encode(Codec& codec, const EncodeInput& input) {
  Payload payload(codec.payload_bytes_max(input.count()));
  payload.resize(codec.encode(input, payload));
  return payload;
}

std::vector<float> decode(const Codec& codec, const Payload& payload, size_t count) {
  std::vector<float> values(count, 7);
  codec.decode(payload, 1, values);
  return values;
}

// ---- format

// Rows 1 and 4 of 5: the values, then a bitmap of 5 bits, for no code has fewer bytes.
TEST(Rows, AreWrittenAsDocumented) {
  const std::vector<float> gradient{0, 0, 1, 0, -0.0F, 0, 0, 0, 2, 3};
  const auto codec = make("rows:dim=2", gradient.size());
  const Payload payload = encode(*codec, {.gradient = gradient});
  ASSERT_EQ(payload.size(), 16u + 4 * 4 + 1);
  const PayloadHeader header = payload_header(payload);
  EXPECT_EQ(header.codec, 19);
  EXPECT_EQ(header.entries, 4u);
  EXPECT_EQ(header.count, 10u);
  EXPECT_EQ(header.flags, static_cast<uint8_t>(IndexCode::kBitmap));
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(load_field<float>(&payload[16 + 4 * i]), (std::vector<float>{1, 0, 2, 3})[i]);
  EXPECT_EQ(payload[32], std::byte{0b10010});
}

TEST(Rows, OfZerosAreTheHeader) {
  const auto codec = make("rows:dim=64", 6400);
  EXPECT_EQ(encode(*codec, {.gradient = std::vector<float>(6400)}).size(), kPayloadHeaderBytes);
  EXPECT_EQ(encode(*codec, {.gradient = std::vector<float>(6400, -0.0F)}).size(),
            kPayloadHeaderBytes);
}

TEST(Rows, AreAtWorstABitmapLongerThanDense) {
  for (const size_t count : {1, 63, 64, 65, 1000, 6400}) {
    const auto codec = make("rows:dim=64", count);
    const Payload payload = encode(*codec, {.gradient = std::vector<float>(count, 1)});
    const size_t rows = (count + 63) / 64;
    EXPECT_EQ(payload.size(), 16 + 4 * count + (rows + 7) / 8) << count;
    EXPECT_EQ(codec->payload_bytes_max(count), payload.size()) << count;
  }
}

TEST(Rows, HaveTheTensorsColumnsUnlessTheSpecSays) {
  const std::vector<float> gradient{0, 0, 0, 0, 0, 1};
  EXPECT_EQ(payload_header(encode(*make("rows", 6, 3), {.gradient = gradient})).entries, 3u);
  EXPECT_EQ(payload_header(encode(*make("rows:dim=2", 6, 3), {.gradient = gradient})).entries, 2u);
}

TEST(Rows, AreSentWhereAnElementIsNotFinite) {
  const std::vector<float> gradient{0, 0, std::nanf(""), 0, 0, kInf, 0, -kInf, 0, 0};
  const auto codec = make("rows:dim=2", gradient.size());
  const std::vector<float> values =
      decode(*codec, encode(*codec, {.gradient = gradient}), gradient.size());
  EXPECT_TRUE(std::isnan(values[2]));
  EXPECT_EQ(values[5], kInf);
  EXPECT_EQ(values[7], -kInf);
  EXPECT_EQ(payload_header(encode(*codec, {.gradient = gradient})).entries, 6u);
}

// Any rows of any partition that ends in a row arrive with their bits, and the bytes are those of
// the formula: nothing of the others travels.
TEST(Rows, ArriveExactlyWhateverTheLengths) {
  std::mt19937 random(3);
  for (const size_t row : {1, 2, 7, 64, 300, 1000}) {
    for (const size_t count : {1, 6, 64, 999, 5003}) {
      std::vector<float> gradient(count);
      size_t sent = 0;
      for (size_t first = 0; first < count; first += row) {
        if (random() % 3 != 0) continue;
        const size_t end = std::min(first + row, count);
        sent += end - first;
        gradient[first + random() % (end - first)] = static_cast<float>(random() % 1000 + 1);
      }
      const auto codec = make("rows:dim=" + std::to_string(row), count);
      const Payload payload = encode(*codec, {.gradient = gradient});
      ASSERT_TRUE(codec->check(payload, count).ok()) << codec->check(payload, count).message();
      EXPECT_EQ(payload_header(payload).entries, sent) << row << " " << count;
      EXPECT_EQ(decode(*codec, payload, count), gradient) << row << " " << count;
    }
  }
}

TEST(Rows, AddWhatTheyScale) {
  const auto codec = make("rows:dim=2", 6);
  const Payload payload = encode(*codec, {.gradient = std::vector<float>{0, 0, 1, 2, 0, 0}});
  std::vector<float> sum{1, 1, 1, 1, 1, 1};
  codec->accumulate(payload, 0.5F, sum);
  EXPECT_THAT(sum, ElementsAre(1, 1, 1.5F, 2, 1, 1));
  codec->clear_sent(payload, sum);
  EXPECT_THAT(sum, ElementsAre(1, 1, 0, 0, 1, 1));
}

// ---- memory

TEST(Rows, LeaveNothingBehind) {
  std::vector<float> residual{0, 0, 0, 0.5F, 0, 0};
  const auto codec = make("rows:dim=2", 6);
  const std::vector<float> gradient{1, 2, 0, 0, 0, 0};
  const Payload payload = encode(*codec, {.gradient = gradient, .residual = residual});
  EXPECT_THAT(decode(*codec, payload, 6), ElementsAre(1, 2, 0, 0.5F, 0, 0));
  EXPECT_THAT(residual, Each(0));
}

// 1/3 in fp16 is 1365 / 4096; 70000 is too large for it.
TEST(Rows, OfHalvesLeaveTheRoundingError) {
  std::vector<float> residual(4);
  const auto codec = make("rows:dim=2,values=fp16", 4);
  const std::vector<float> gradient{1.0F / 3, 70000, 0, 0};
  const Payload payload = encode(*codec, {.gradient = gradient, .residual = residual});
  EXPECT_EQ(payload.size(), 16u + 2 * 2 + 1);
  EXPECT_THAT(decode(*codec, payload, 4), ElementsAre(1365.0F / 4096, kInf, 0, 0));
  EXPECT_THAT(residual, ElementsAre(1.0F / 3 - 1365.0F / 4096, 0, 0, 0));
}

// What makes a row zero was kept and is used up; what meets a NaN stays, its neighbour was sent.
TEST(Rows, KeepWhatIsLostToANotFiniteElementAlone) {
  std::vector<float> residual{1, 2, 3, 4};
  const auto codec = make("rows:dim=2", 4);
  const std::vector<float> gradient{-0.5F, -1, std::nanf(""), 1};
  const Payload payload =
      encode(*codec, {.gradient = gradient, .residual = residual, .decay = 0.5F});
  EXPECT_EQ(payload_header(payload).entries, 2u);
  EXPECT_EQ(decode(*codec, payload, 4)[3], 3);
  EXPECT_THAT(residual, ElementsAre(0, 0, 3, 0));
}

// Rows longer than a block of v.
TEST(Rows, MayBeLongerThanABlock) {
  std::vector<float> gradient(3 * 5000);
  gradient[5000 + 4999] = 1;
  std::vector<float> residual(gradient.size());
  residual[2 * 5000] = 2;
  const auto codec = make("rows:dim=5000", gradient.size());
  const Payload payload = encode(*codec, {.gradient = gradient, .residual = residual});
  gradient[2 * 5000] = 2;
  EXPECT_EQ(payload_header(payload).entries, 10000u);
  EXPECT_EQ(decode(*codec, payload, gradient.size()), gradient);
}

// ---- hostile payloads

// Of 7 elements in rows of 2: rows 0 and 3, of which there is one element.
void expect_refused(const char* field, const std::function<void(Payload&)>& damage) {
  const auto codec = make("rows:dim=2", 7);
  Payload payload = encode(*codec, {.gradient = std::vector<float>{1, 2, 0, 0, 0, 0, 3}});
  ASSERT_EQ(payload.size(), 16u + 3 * 4 + 1);
  ASSERT_TRUE(codec->check(payload, 7).ok());
  damage(payload);
  const Status status = codec->check(payload, 7);
  EXPECT_EQ(status.code(), Code::kCorrupt) << field;
  EXPECT_THAT(status.message(), HasSubstr(std::string("field ") + field));
}

TEST(Rows, RefuseWhatTheyDoNotWrite) {
  expect_refused("codec", [](Payload& p) { p[0] = std::byte{6}; });
  expect_refused("flags", [](Payload& p) { p[2] |= std::byte{0x10}; });
  expect_refused("flags", [](Payload& p) { p[2] |= std::byte{0x04}; });
  expect_refused("detail", [](Payload& p) { p[3] = std::byte{1}; });
  expect_refused("entries", [](Payload& p) { p[12] = std::byte{8}; });
  expect_refused("bytes", [](Payload& p) { p[12] = std::byte{5}; });
  // Two elements of two whole rows, or of three rows, where there is a part of one.
  expect_refused("indices", [](Payload& p) { p[12] = std::byte{2}; });
  expect_refused("indices", [](Payload& p) { p.back() = std::byte{0b1011}; });
  expect_refused("indices", [](Payload& p) { p.back() = std::byte{0b11001}; });
  // The last row, whole, and another one instead of it.
  expect_refused("indices", [](Payload& p) { p.back() = std::byte{0b0011}; });
  // "Not finite, and nothing else": others write that.
  expect_refused("flags", [](Payload& p) {
    p.resize(kNotFiniteBytes);
    encode_not_finite(CodecId::kRows, 7, 0, kInf, p);
  });
}

TEST(Rows, EntriesAreThoseOfWholeRows) {
  const auto codec = make("rows:dim=3", 9);
  Payload payload = encode(*codec, {.gradient = std::vector<float>{1, 2, 3, 0, 0, 0, 0, 0, 0}});
  payload[12] = std::byte{2};
  EXPECT_THAT(codec->check(payload, 9).message(), HasSubstr("field entries"));
}

// ---- kernel

TEST(Zeros, AreSkippedAlikeOnEveryTarget) {
  on_each_target([] {
    for (const size_t count : {0, 1, 3, 15, 16, 17, 63, 64, 65, 127, 128, 129, 500, 1025}) {
      for (size_t offset = 0; offset < 5; ++offset) {
        std::vector<float> values(count + offset, 0);
        for (size_t i = 0; i < values.size(); i += 3) values[i] = -0.0F;
        const float* const from = values.data() + offset;
        ASSERT_EQ(first_not_zero(from, count), count);
        ASSERT_EQ(first_not_zero_scalar(from, count), count);
        for (const float odd : {1.0F, -1e-45F, std::nanf(""), -kInf}) {
          for (size_t at = 0; at < count; at += 1 + count / 50) {
            const float before = std::exchange(values[offset + at], odd);
            ASSERT_EQ(first_not_zero(from, count), at) << count << " from " << offset;
            ASSERT_EQ(first_not_zero_scalar(from, count), at);
            values[offset + at] = before;
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace gradbus
