#include "compression/kernels/quantize/narrow.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <vector>

#include "tests/unit/compression/each_target.h"

namespace gradbus {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr size_t kCounts[] = {0, 1, 3, 7, 8, 9, 15, 17, 33, 1027};

// Any bits at all, and values that f16 holds.
std::vector<float> any_values(size_t count) {
  std::mt19937 random(count);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const auto bits = static_cast<uint32_t>(random());
    values[i] = i % 2 == 0 ? std::bit_cast<float>(bits) : static_cast<float>(bits) * 0x1p-32F;
  }
  return values;
}

std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values)  // which NaN comes out of arithmetic is the processor's choice
    bits.push_back(value == value ? std::bit_cast<uint32_t>(value) : 0x7fc00000);
  return bits;
}

TEST(Narrow, EachTargetEqualsScalar) {
  for (const DType dtype : kTypes)
    for (const size_t count : kCounts)
      for (const bool feedback : {false, true}) {
        const std::vector<float> values = any_values(count);
        const size_t bytes = count * dtype_bytes(dtype) + 2;  // one before, one behind
        std::vector<std::byte> expected(bytes), narrowed(bytes);
        std::vector<float> lost_expected(count + 1, 3);
        float* const residual = feedback ? lost_expected.data() : nullptr;
        narrow_scalar(dtype, values.data(), count, expected.data() + 1, residual);
        on_each_target([&] {
          std::vector<float> lost(count + 1, 3);
          narrow(dtype, values.data(), count, narrowed.data() + 1,
                 feedback ? lost.data() : nullptr);
          EXPECT_EQ(narrowed, expected) << dtype_name(dtype) << " " << count;
          EXPECT_EQ(bits_of(lost), bits_of(lost_expected)) << dtype_name(dtype) << " " << count;
        });
      }
}

TEST(Widen, EachTargetEqualsScalar) {
  std::mt19937 random(1);
  for (const DType dtype : kTypes)
    for (const size_t count : kCounts)
      for (const bool add : {false, true}) {
        std::vector<std::byte> from(count * dtype_bytes(dtype) + 1);
        for (std::byte& byte : from) byte = static_cast<std::byte>(random());
        std::vector<float> expected(count + 1, 0.7F);
        widen_scalar(dtype, from.data() + 1, count, 0.3F, expected.data(), add);
        on_each_target([&] {
          std::vector<float> to(count + 1, 0.7F);
          widen(dtype, from.data() + 1, count, 0.3F, to.data(), add);
          EXPECT_EQ(bits_of(to), bits_of(expected)) << dtype_name(dtype) << " " << count;
        });
      }
}

}  // namespace
}  // namespace gradbus
