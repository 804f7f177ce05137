// The payload that all sparse codecs share: bytes by hand, error feedback, hostile payloads.
#include "compression/codecs/sparse_payload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "compression/index_coding.h"
#include "compression/registry.h"

namespace gradbus {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

using Payload = std::vector<std::byte>;

constexpr float kInf = std::numeric_limits<float>::infinity();

std::unique_ptr<Codec> make(std::string_view text, size_t count) {
  Result<CompressionSpec> parsed = parse_compression(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return parsed.value().codec->make(parsed.value().options, {.count_max = count});
}

Payload encode(Codec& codec, const EncodeInput& input) {
  Payload payload(codec.payload_bytes_max(input.count()));
  payload.resize(codec.encode(input, payload));
  EXPECT_TRUE(codec.check(payload, input.count()).ok());
  return payload;
}

// Elements 1 and 3 of 4: 2.0 = 0x40000000, -3.0 = 0xc0400000, and the bitmap 0b1010.
TEST(SparsePayload, BytesByHand) {
  const std::vector<float> gradient{1, 2, 0, -3};
  const auto codec = make("topk:ratio=0.5", 4);
  const Payload payload = encode(*codec, {.gradient = gradient});
  const std::vector<int> want{6, 1, 1, 0, 4, 0, 0,    0, 9, 0,    0,    0,     2,
                              0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0x40, 0xc0, 0b1010};
  std::vector<int> got;
  for (const std::byte byte : payload) got.push_back(std::to_integer<int>(byte));
  EXPECT_EQ(got, want);
}

TEST(SparsePayload, DecodesAddsAndClears) {
  const std::vector<float> gradient{1, 2, 0, -3};
  const auto codec = make("topk:ratio=0.5", 4);
  const Payload payload = encode(*codec, {.gradient = gradient});
  std::vector<float> values(4, 9);
  codec->decode(payload, 2, values);
  EXPECT_THAT(values, ElementsAre(0, 4, 0, -6));
  codec->accumulate(payload, 0.5F, values);
  EXPECT_THAT(values, ElementsAre(0, 5, 0, -7.5F));
  std::vector<float> momentum{1, 2, 3, 4};
  codec->clear_sent(payload, momentum);
  EXPECT_THAT(momentum, ElementsAre(1, 0, 3, 0));
}

// 1/3 in fp16 is 0x3555 = 1365 / 4096.
TEST(SparsePayload, KeepsTheRoundingErrorOfHalves) {
  const std::vector<float> gradient{1.0F / 3, 0.1F};
  std::vector<float> residual(2, 0);
  const auto codec = make("topk:ratio=0.5,values=fp16", 2);
  const Payload payload = encode(*codec, {.gradient = gradient, .residual = residual});
  EXPECT_EQ(payload.size(), kPayloadHeaderBytes + 2 + 1);
  EXPECT_THAT(residual, ElementsAre(1.0F / 3 - 1365.0F / 4096, 0.1F));
}

// Too large for fp16: Inf arrives, and the residual stays finite.
TEST(SparsePayload, OverflowOfHalvesIsSeen) {
  const std::vector<float> gradient{70000, 1};
  std::vector<float> residual(2, 0);
  const auto codec = make("topk:ratio=1,values=fp16", 2);
  const Payload payload = encode(*codec, {.gradient = gradient, .residual = residual});
  std::vector<float> values(2);
  codec->decode(payload, 1, values);
  EXPECT_THAT(values, ElementsAre(kInf, 1));
  EXPECT_THAT(residual, ElementsAre(0, 0));
}

// Where Golomb's code would be little shorter.
TEST(SparsePayload, DenseSelectionsTakeABitmap) {
  std::vector<float> gradient(1000);
  for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(i * 7919 % 1000);
  for (const size_t percent : {29, 30, 31}) {
    const auto codec = make("topk:ratio=0." + std::to_string(percent), gradient.size());
    const Payload payload = encode(*codec, {.gradient = gradient});
    const auto code = static_cast<IndexCode>(payload_header(payload).flags & 3);
    EXPECT_EQ(code == IndexCode::kBitmap, percent >= 30) << percent;
    if (code == IndexCode::kBitmap) {
      EXPECT_EQ(payload.size(), 16 + 40 * percent + 125);
    }
  }
}

TEST(SparsePayload, OfNoElementsIsTheHeader) {
  for (const CodecRow& row : sparse_codecs()) {
    const auto codec = make(row.name, 8);
    const Payload payload = encode(*codec, {});
    EXPECT_EQ(payload.size(), kPayloadHeaderBytes) << row.name;
    codec->accumulate(payload, 1, {});
  }
}

// ---- not finite ---------------------------------------------------------------------------------

void expect_residual_unchanged(std::vector<float> gradient, std::vector<float> residual) {
  const size_t bad = gradient.size() - 2;
  gradient[bad] = std::nanf("");
  const std::vector<float> before = residual;
  for (const CodecRow& row : sparse_codecs()) {
    for (const float decay : {1.0F, 0.5F}) {
      SCOPED_TRACE(testing::Message() << row.name << " " << gradient.size() << " decay " << decay);
      const auto codec = make(row.name, gradient.size());
      const Payload payload =
          encode(*codec, {.gradient = gradient, .residual = residual, .decay = decay});
      EXPECT_EQ(payload.size(), kNotFiniteBytes);
      EXPECT_EQ(residual, before);
      std::vector<float> values(gradient.size());
      codec->decode(payload, 1, values);
      EXPECT_TRUE(std::isnan(values[bad]));
      codec->clear_sent(payload, values);
      EXPECT_TRUE(std::isnan(values[bad]));
    }
  }
}

// 10^8 + 0.1 is 10^8: nothing can be undone, so it must not be written.
TEST(SparsePayload, ANotFinitePartitionLeavesTheResidual) {
  expect_residual_unchanged(std::vector<float>(3000, 1e8F), std::vector<float>(3000, 0.1F));
}

// What was written is undone; exactly, where the additions were, as of small whole numbers.
TEST(SparsePayload, ALargeNotFinitePartitionRestoresTheResidual) {
  const size_t count = (size_t{1} << 20) + 5000;
  std::vector<float> gradient(count), residual(count);
  for (size_t i = 0; i < count; ++i) {
    gradient[i] = static_cast<float>(i % 17) - 8;
    residual[i] = static_cast<float>(i % 23) - 11;
  }
  expect_residual_unchanged(gradient, residual);
}

// Of such a payload nothing but the body counts: this one, read as one fp16 value and its index,
// names element 0.
TEST(SparsePayload, ANotFinitePayloadClearsNothing) {
  const std::vector<float> gradient{1, kInf, 3, 4};
  const auto codec = make("topk:ratio=0.5", 4);
  Payload payload = encode(*codec, {.gradient = gradient});
  payload[2] |= std::byte{0x04};  // fp16
  payload[12] = std::byte{1};     // entries
  std::vector<float> values{1, 2, 3, 4};
  if (codec->check(payload, 4).ok()) codec->clear_sent(payload, values);
  EXPECT_THAT(values, ElementsAre(1, 2, 3, 4));
}

// v overflows where neither gradient nor residual does.
TEST(SparsePayload, OverflowOfVIsSeen) {
  const float max = std::numeric_limits<float>::max();
  for (const CodecRow& row : sparse_codecs()) {
    const std::vector<float> gradient{1, 2, max, 0};
    std::vector<float> residual{1, 1, max, 1};
    const auto codec = make(row.name, 4);
    const Payload payload = encode(*codec, {.gradient = gradient, .residual = residual});
    std::vector<float> values(4);
    codec->decode(payload, 1, values);
    EXPECT_EQ(values[2], kInf) << row.name;
    EXPECT_THAT(residual, ElementsAre(1, 1, max, 1)) << row.name;
  }
}

// ---- hostile payloads ---------------------------------------------------------------------------

void expect_refused(const char* field, const std::function<void(Payload&)>& damage) {
  const std::vector<float> gradient{1, 2, 0, -3};
  const auto codec = make("topk:ratio=0.5", 4);
  Payload payload = encode(*codec, {.gradient = gradient});
  damage(payload);
  const Status status = codec->check(payload, 4);
  EXPECT_EQ(status.code(), Code::kCorrupt) << field;
  EXPECT_THAT(status.message(), HasSubstr(std::string("field ") + field));
}

TEST(SparsePayload, RefusesFieldsThatAreWrong) {
  expect_refused("codec", [](Payload& p) { p[0] = std::byte{7}; });
  expect_refused("version", [](Payload& p) { p[1] = std::byte{2}; });
  expect_refused("flags", [](Payload& p) { p[2] |= std::byte{0x10}; });
  expect_refused("flags", [](Payload& p) { p[2] |= std::byte{0x04}; });  // fp16
  expect_refused("flags", [](Payload& p) { p[2] |= std::byte{0x0c}; });  // no type
  expect_refused("detail", [](Payload& p) { p[3] = std::byte{1}; });
  expect_refused("count", [](Payload& p) { p[4] = std::byte{5}; });
  expect_refused("bytes", [](Payload& p) { p[8] = std::byte{8}; });
  expect_refused("bytes", [](Payload& p) { p.push_back(std::byte{0}); });
  expect_refused("entries", [](Payload& p) { p[12] = std::byte{1}; });
  expect_refused("entries", [](Payload& p) { p[15] = std::byte{0x80}; });
  expect_refused("indices", [](Payload& p) { p[24] = std::byte{0b1011}; });
  expect_refused("indices", [](Payload& p) { p[24] = std::byte{0b11000}; });
  expect_refused("bytes", [](Payload& p) {
    p.resize(kPayloadHeaderBytes + 4);
    p[8] = std::byte{4};
  });
}

// Whatever passes check() can be used; the sanitizers watch.
TEST(SparsePayload, DamagedPayloadsAreHarmless) {
  std::mt19937_64 random(11);
  std::vector<float> gradient(500);
  for (float& value : gradient) value = static_cast<float>(random() % 1000) - 500;
  for (const CodecRow& row : sparse_codecs()) {
    const auto codec =
        make(std::string(row.name) + (row.name == "threshold" ? ":value=400" : ""), 500);
    const Payload good = encode(*codec, {.gradient = gradient});
    std::vector<float> values(500);
    for (int round = 0; round < 3000; ++round) {
      Payload bad = good;
      for (uint64_t n = 1 + random() % 3; n != 0; --n)
        bad[random() % bad.size()] = static_cast<std::byte>(random());
      if (!codec->check(bad, 500).ok()) continue;
      codec->accumulate(bad, 1, values);
      codec->decode(bad, 1, values);
      codec->clear_sent(bad, values);
    }
  }
}

}  // namespace
}  // namespace gradbus
