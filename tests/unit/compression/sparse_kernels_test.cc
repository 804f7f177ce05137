// The kernels of the sparse family on every SIMD target this processor has against their scalar
// forms, bit for bit.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "compression/kernels/quantize/wire_values.h"
#include "compression/kernels/select/expand.h"
#include "compression/kernels/select/select.h"
#include "hwy/targets.h"

namespace gradbus {
namespace {

constexpr size_t kCounts[] = {0, 1, 3, 7, 8, 9, 15, 17, 63, 64, 65, 127, 128, 200, 1025, 5000};

// Runs `test` once for each target, and leaves the choice to the processor again.
template <typename Test>
void on_every_target(const Test& test) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    test();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// Any bits, many of them alike, with NaN, Inf, zeros and denormals among them.
std::vector<float> hard_values(size_t count, uint64_t seed) {
  constexpr uint32_t kHard[] = {0x00000000, 0x80000000, 0x00000001, 0x7f7fffff, 0xff7fffff,
                                0x7f800000, 0xff800000, 0x7fc00000, 0x3f800000, 0xbf800000};
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::vector<float> values(count);
  for (float& value : values) {
    const uint32_t bits = static_cast<uint32_t>(random());
    value = std::bit_cast<float>(bits % 4 == 0 ? kHard[bits / 4 % 10] : bits);
  }
  return values;
}

TEST(Select, MasksEqualScalarOnEveryTarget) {
  constexpr KeyRange kRanges[] = {{},
                                  {1, kKeyMax},
                                  {0x3f800000, 0x3f800000},
                                  {0, 0},
                                  {kKeyInfinity, kKeyMax},
                                  {kKeyMax, kKeyMax},
                                  {kKeyMax + 1, kKeyMax},
                                  {0x3c000000, 0x40000000}};
  on_every_target([&] {
    for (const size_t count : kCounts) {
      for (size_t offset = 0; offset < 5; ++offset) {
        const std::vector<float> values = hard_values(count + offset, count);
        for (const KeyRange range : kRanges) {
          std::vector<uint64_t> got((count + 63) / 64, 99);
          std::vector<uint64_t> want((count + 63) / 64, 77);
          magnitude_masks(values.data() + offset, count, range, got.data());
          magnitude_masks_scalar(values.data() + offset, count, range, want.data());
          ASSERT_EQ(got, want) << count << " from " << offset;
        }
      }
    }
  });
}

TEST(Select, MasksByHand) {
  const float values[] = {1, -2, 0.5F, std::nanf(""), -HUGE_VALF, 0};
  uint64_t mask = 0;
  magnitude_masks_scalar(values, 6, {magnitude_key(1), kKeyMax}, &mask);
  EXPECT_EQ(mask, 0b011011u);
  magnitude_masks_scalar(values, 6, {0, magnitude_key(1)}, &mask);
  EXPECT_EQ(mask, 0b100101u);
}

void expect_same_bits(const std::vector<float>& got, const std::vector<float>& want, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;  // of whose bits
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i])) << i;
  }
}

// Memory of exactly that size, so a sanitizer sees a byte too far.
void expect_same_block(const std::vector<float>& gradient, const std::vector<float>& kept,
                       float decay, size_t count, uint32_t from, bool clears) {
  std::vector<float> left = kept, left_scalar = kept;
  SelectBlock block{.gradient = gradient.empty() ? nullptr : gradient.data(),
                    .kept = kept.empty() ? nullptr : left.data(),
                    .decay = decay,
                    .count = count,
                    .clears = clears};
  std::vector<uint64_t> got((count + 63) / 64, 99), want((count + 63) / 64, 99);
  std::vector<float> values(count + kValueSlack), values_scalar(count);
  const TakenBlock taken = take_block(block, from, got.data(), values.data());
  if (!kept.empty()) block.kept = left_scalar.data();
  const TakenBlock scalar = take_block_scalar(block, from, want.data(), values_scalar.data());
  ASSERT_EQ(taken.taken, scalar.taken);
  ASSERT_EQ(taken.found, scalar.found);
  ASSERT_EQ(got, want) << count;
  expect_same_bits(values, values_scalar, scalar.found);
  expect_same_bits(left, left_scalar, kept.size());
}

// Any bits, of which some are not finite in most words, and numbers.
TEST(Select, BlocksEqualScalarOnEveryTarget) {
  on_every_target([&] {
    for (const size_t count : kCounts) {
      for (const bool finite : {false, true}) {
        std::vector<float> gradient = hard_values(count, count);
        std::vector<float> kept = hard_values(count, count + 1);
        for (std::vector<float>* values : {&gradient, &kept})
          for (float& value : *values)
            if (finite && !(std::abs(value) < 1e38F)) value = -0.5F;
        for (const uint32_t from : {0u, 0x3c000000u, 0x7f000000u}) {
          for (const bool clears : {false, true}) {
            expect_same_block(gradient, {}, 1, count, from, clears);
            expect_same_block({}, kept, 0.9F, count, from, clears);
            expect_same_block(gradient, kept, 0.5F, count, from, clears);
          }
        }
      }
    }
  });
}

// NaN at 70: the second word of 64 and what follows are left as they were, masks too.
TEST(Select, BlocksStopInFrontOfAWordThatIsNotFinite) {
  on_every_target([&] {
    for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
      std::vector<float> gradient(200, 1.0F), kept(200, 2.0F), expected(200, 2.0F);
      gradient[70] = bad;
      std::fill_n(expected.begin(), 64, 3.0F);
      std::vector<uint64_t> masks(4, 77);
      const SelectBlock block{gradient.data(), kept.data(), 1, 200};
      float values[200 + kValueSlack];
      const TakenBlock taken = take_block(block, magnitude_key(3), masks.data(), values);
      EXPECT_EQ(taken.taken, 64u);
      EXPECT_EQ(taken.found, 64u);
      EXPECT_EQ(kept, expected);
      EXPECT_EQ(masks, (std::vector<uint64_t>{~uint64_t{0}, 77, 77, 77}));
    }
  });
}

TEST(Select, BlocksByHand) {
  const float gradient[] = {1, -2, 0.5F, 4};
  float kept[] = {2, 2, -1, 2};
  SelectBlock block{gradient, kept, 0.5F, 4};  // v = 2, -1, 0, 5
  uint64_t mask = 0;
  float values[4 + kValueSlack];
  const TakenBlock taken = take_block(block, magnitude_key(2), &mask, values);
  EXPECT_EQ(taken.taken, 4u);
  EXPECT_EQ(mask, 0b1001u);
  ASSERT_EQ(taken.found, 2u);
  EXPECT_EQ(std::vector<float>(values, values + 2), (std::vector<float>{2, 5}));
  EXPECT_EQ(std::vector<float>(kept, kept + 4), (std::vector<float>{2, -1, 0, 5}));
  block.clears = true;
  block.gradient = nullptr;  // v = 1, -0.5, 0, 2.5
  ASSERT_EQ(take_block(block, magnitude_key(1), &mask, values).found, 2u);
  EXPECT_EQ(std::vector<float>(values, values + 2), (std::vector<float>{1, 2.5F}));
  EXPECT_EQ(std::vector<float>(kept, kept + 4), (std::vector<float>{0, -0.5F, 0, 0}));
}

TEST(Select, IndicesOfBitsOnEveryTarget) {
  on_every_target([&] {
    for (const uint64_t few : {~uint64_t{0}, uint64_t{0x8000000000000001}, uint64_t{0}}) {
      const std::vector<uint64_t> masks{few, 0x5, uint64_t{1} << 63, 0, 0x3};
      const size_t count = 4 * 64 + 2;
      std::vector<uint32_t> want, got(count + kIndexSlack);
      for (uint32_t i = 0; i < count; ++i)
        if ((masks[i / 64] >> (i % 64) & 1) != 0) want.push_back(1000 + i);
      got.resize(put_indices(masks.data(), count, 1000, got.data()));
      ASSERT_EQ(got, want);
    }
  });
}

TEST(Expand, ByHand) {
  const std::byte bits[] = {std::byte{0b10000101}, std::byte{0b10}};
  const std::vector<float> values{10, 20, 30, 40, 0, 0, 0, 0, 0, 0, 0, 0};
  std::vector<float> sum(10, 1);
  EXPECT_EQ(count_bits(bits, 10), 4u);
  EXPECT_EQ(add_expanded(bits, 10, values.data(), sum.data()), 4u);
  EXPECT_EQ(sum, (std::vector<float>{11, 1, 21, 1, 1, 1, 1, 31, 1, 41}));
}

// What no bit names stays as it is: -0, and NaN of any bits.
TEST(Expand, EqualsScalarOnEveryTarget) {
  on_every_target([] {
    for (const size_t count : kCounts) {
      for (const uint32_t share : {0u, 1u, 3u, 4u}) {
        std::mt19937 random(static_cast<uint32_t>(count) + share);
        std::vector<std::byte> bits((count + 7) / 8);
        size_t set = 0;
        for (size_t i = 0; i < count; ++i) {
          if (random() % 4 >= share) continue;
          bits[i / 8] |= std::byte{1} << i % 8;
          ++set;
        }
        const std::vector<float> values = hard_values(set + kExpandSlack, count);
        std::vector<float> got = hard_values(count, count + 1), want = got;
        ASSERT_EQ(count_bits(bits.data(), count), set);
        ASSERT_EQ(add_expanded_scalar(bits.data(), count, values.data(), want.data()), set);
        ASSERT_EQ(add_expanded(bits.data(), count, values.data(), got.data()), set);
        expect_same_bits(got, want, count);
      }
    }
  });
}

TEST(Select, VisitsInOrder) {
  std::vector<float> values(5000, 0);
  const std::vector<size_t> places{0, 63, 64, 2047, 2048, 4999};
  for (const size_t place : places) values[place] = -1;
  std::vector<size_t> visited;
  for_each_in_range(values.data(), values.size(), {1, kKeyMax},
                    [&](size_t i) { visited.push_back(i); });
  EXPECT_EQ(visited, places);
}

TEST(WireValues, StoreEqualsScalarOnEveryTarget) {
  on_every_target([&] {
    for (const WireType type : {WireType::kF32, WireType::kFp16, WireType::kBf16}) {
      for (const size_t count : kCounts) {
        const std::vector<float> values = hard_values(count + 1, count);
        std::vector<std::byte> got(4 * count + 1), want(4 * count + 1);
        store_wire_values(type, values.data() + 1, count, got.data() + 1);
        store_wire_values_scalar(type, values.data() + 1, count, want.data() + 1);
        ASSERT_EQ(got, want) << int(type) << " " << count;
      }
    }
  });
}

// Every half there is; signalling NaNs become quiet ones in the multiplication.
TEST(WireValues, LoadEqualsScalarOnEveryTarget) {
  std::vector<uint16_t> halves(0x10000 + 3);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  const auto* bytes = reinterpret_cast<const std::byte*>(halves.data());
  on_every_target([&] {
    for (const WireType type : {WireType::kF32, WireType::kFp16, WireType::kBf16}) {
      const size_t count = type == WireType::kF32 ? 0x8000 : 0x10000;
      for (const float scale : {1.0F, -0.3F}) {
        std::vector<float> got(count), want(count);
        load_wire_values(type, bytes + 1, count, scale, got.data());
        load_wire_values_scalar(type, bytes + 1, count, scale, want.data());
        for (size_t i = 0; i < count; ++i)
          ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i])) << i;
      }
    }
  });
}

// 1/3 in fp16 is 0x3555, in bf16 0x3eab (0x3eaaaaab, rounded up); 70000 is beyond fp16.
TEST(WireValues, ByHand) {
  const float values[] = {1.0F / 3, 70000};
  uint16_t halves[2];
  store_wire_values(WireType::kFp16, values, 2, reinterpret_cast<std::byte*>(halves));
  EXPECT_EQ(halves[0], 0x3555);
  EXPECT_EQ(halves[1], 0x7c00);
  store_wire_values(WireType::kBf16, values, 2, reinterpret_cast<std::byte*>(halves));
  EXPECT_EQ(halves[0], 0x3eab);
}

}  // namespace
}  // namespace gradbus
