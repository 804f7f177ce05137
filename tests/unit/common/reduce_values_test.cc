// Tests reduce() on each SIMD target of this processor, and its scalar form, with values worked by
// hand.
#include "common/kernels/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "common/kernels/reduce_targets.h"
#include "tests/unit/common/reduce_target_names.h"

namespace gradbus {
namespace {

class ReduceValues : public ::testing::TestWithParam<ReduceTarget> {};

// Reduces one-element vectors. They are repeated to 41 elements, so that whole vectors and the
// remainder both compute the value. All 41 results must agree.
template <typename T>
T reduce_values(const ReduceTarget& target, DType dtype, const std::vector<T>& values,
                const Reduction& how) {
  constexpr size_t kRepeat = 41;
  std::vector<std::vector<T>> vectors(values.size());
  std::vector<const std::byte*> sources(values.size());
  for (size_t s = 0; s < values.size(); ++s) {
    vectors[s].assign(kRepeat, values[s]);
    sources[s] = std::as_bytes(std::span(vectors[s])).data();
  }
  std::vector<T> result(kRepeat);
  std::byte* const targets[] = {std::as_writable_bytes(std::span(result)).data()};
  target.run(dtype, how, sources.data(), sources.size(), targets, 1, kRepeat);
  const auto bytes = std::as_bytes(std::span(result));
  EXPECT_EQ(std::memcmp(&bytes[0], &bytes[sizeof(T)], bytes.size() - sizeof(T)), 0);
  return result[0];
}

TEST_P(ReduceValues, F16RoundsOnceToNearestEven) {
  const auto f16 = [&](const std::vector<uint16_t>& values, uint32_t divisor = 1) {
    return reduce_values(GetParam(), DType::kF16, values, {.divisor = divisor});
  };
  EXPECT_EQ(f16({0x6800, 0x3c00}), 0x6800);          // 2048 + 1: tie, down to even
  EXPECT_EQ(f16({0x6801, 0x3c00}), 0x6802);          // 2050 + 1: tie, up to even
  EXPECT_EQ(f16({0x6800, 0x3c00, 0x3c00}), 0x6801);  // 2048 + 1 + 1 = 2050: no rounding between
  EXPECT_EQ(f16({0x7bff, 0x4800}), 0x7bff);          // 65504 + 8
  EXPECT_EQ(f16({0x7bff, 0x4c00}), 0x7c00);          // 65504 + 16 = 65520: Inf from there
  EXPECT_EQ(f16({0x7bff, 0x7bff}, 2), 0x7bff);       // overflows f16 but not the f32 sum
  EXPECT_EQ(f16({0x0001, 0x0000}, 2), 0x0000);       // half of the smallest subnormal
  EXPECT_EQ(f16({0x0003, 0x0000}, 2), 0x0002);       // 1.5 units: tie, up to even
  EXPECT_EQ(f16({0x03ff, 0x0001}), 0x0400);          // subnormals into the smallest normal
  EXPECT_EQ(f16({0x8000, 0x8000}), 0x8000);          // -0 + -0 = -0
}

TEST_P(ReduceValues, F16KeepsNanAndInf) {
  const auto f16 = [&](const std::vector<uint16_t>& values) {
    return reduce_values(GetParam(), DType::kF16, values, {.divisor = 2});
  };
  EXPECT_EQ(f16({0x7c00, 0x3c00}), 0x7c00);
  EXPECT_EQ(f16({0xfc00, 0x3c00}), 0xfc00);
  EXPECT_GT(f16({0x7c00, 0xfc00}) & 0x7fff, 0x7c00);  // Inf - Inf
  EXPECT_GT(f16({0x7c01, 0x3c00}) & 0x7fff, 0x7c00);
}

TEST_P(ReduceValues, BF16RoundsOnceToNearestEven) {
  const auto bf16 = [&](const std::vector<uint16_t>& values, uint32_t divisor = 1) {
    return reduce_values(GetParam(), DType::kBF16, values, {.divisor = divisor});
  };
  EXPECT_EQ(bf16({0x3f80, 0x3b80}), 0x3f80);          // 1 + 2^-8: tie, down to even
  EXPECT_EQ(bf16({0x3f81, 0x3b80}), 0x3f82);          // 1 + 2^-7 + 2^-8: tie, up to even
  EXPECT_EQ(bf16({0x4380, 0x3f80, 0x3f80}), 0x4381);  // 256 + 1 + 1 = 258: no rounding between
  EXPECT_EQ(bf16({0x7f7f, 0x7b00}), 0x7f80);          // largest + half a unit: Inf
  EXPECT_EQ(bf16({0x0001, 0x0000}, 2), 0x0000);       // half of the smallest subnormal
  EXPECT_EQ(bf16({0x0003, 0x0000}, 2), 0x0002);       // 1.5 units: tie, up to even
  EXPECT_EQ(bf16({0x8000, 0x8000}), 0x8000);          // -0 + -0 = -0
}

TEST_P(ReduceValues, BF16KeepsNanAndInf) {
  const auto bf16 = [&](const std::vector<uint16_t>& values) {
    return reduce_values(GetParam(), DType::kBF16, values, {.divisor = 2});
  };
  EXPECT_EQ(bf16({0x7f80, 0x3f80}), 0x7f80);
  EXPECT_EQ(bf16({0xff80, 0x3f80}), 0xff80);
  EXPECT_GT(bf16({0x7f80, 0xff80}) & 0x7fff, 0x7f80);  // Inf - Inf
  EXPECT_GT(bf16({0x7f81, 0x3f80}) & 0x7fff, 0x7f80);
}

TEST_P(ReduceValues, FloatsAddInSourceOrder) {
  const auto f32 = [&](const std::vector<float>& values) {
    return reduce_values(GetParam(), DType::kF32, values, {});
  };
  EXPECT_EQ(f32({1e8f, 1, -1e8f}), 0);  // 1 is lost in 1e8
  EXPECT_EQ(f32({1e8f, -1e8f, 1}), 1);
  EXPECT_EQ(f32({1, 2, 3, 1e8f, -1e8f, 1, 2, 3, 4}), 18);  // 6 + 1e8 = 100000008, a multiple of 8
  EXPECT_EQ(f32({-0.0f, -0.0f}), 0);
  EXPECT_TRUE(std::signbit(f32({-0.0f, -0.0f})));
  EXPECT_TRUE(std::isnan(f32({INFINITY, -INFINITY})));
}

TEST_P(ReduceValues, FloatsAreMultipliedByTheReciprocal) {
  // 1/3 in f32 is 0x3eaaaaab. 49 * (1/49) in f64 is one unit below 1; 49 / 49 is 1.
  EXPECT_EQ(reduce_values<float>(GetParam(), DType::kF32, {1, 0}, {.divisor = 3}), 0x1.555556p-2f);
  EXPECT_EQ(reduce_values<double>(GetParam(), DType::kF64, {40, 9}, {.divisor = 49}),
            0x1.fffffffffffffp-1);
}

TEST_P(ReduceValues, IntegersWrapAndTruncateTowardZero) {
  const ReduceTarget& target = GetParam();
  EXPECT_EQ(reduce_values<int32_t>(target, DType::kI32, {INT32_MAX, 1}, {.divisor = 1}), INT32_MIN);
  EXPECT_EQ(reduce_values<int32_t>(target, DType::kI32, {-4, -3}, {.divisor = 2}), -3);
  EXPECT_EQ(reduce_values<int32_t>(target, DType::kI32, {4, 3}, {.divisor = 2}), 3);
  EXPECT_EQ(reduce_values<int32_t>(target, DType::kI32, {INT32_MIN, 0}, {.divisor = 4'000'000'000}),
            0);
  EXPECT_EQ(reduce_values<int64_t>(target, DType::kI64, {INT64_MAX, 1}, {.divisor = 1}), INT64_MIN);
  EXPECT_EQ(reduce_values<int64_t>(target, DType::kI64, {INT64_MIN, 0}, {.divisor = 3}),
            -3074457345618258602);
  EXPECT_EQ(reduce_values<uint8_t>(target, DType::kU8, {200, 100}, {.divisor = 1}), 44);
  EXPECT_EQ(reduce_values<uint8_t>(target, DType::kU8, {200, 100}, {.divisor = 3}), 14);
  EXPECT_EQ(reduce_values<uint8_t>(target, DType::kU8, {200, 50}, {.divisor = 1000}), 0);
}

TEST_P(ReduceValues, ShortAndUnsignedIntegersWrapAndTruncateTowardZero) {
  const ReduceTarget& target = GetParam();
  EXPECT_EQ(reduce_values<int16_t>(target, DType::kI16, {INT16_MAX, 1}, {.divisor = 1}), INT16_MIN);
  EXPECT_EQ(reduce_values<int16_t>(target, DType::kI16, {-4, -3}, {.divisor = 2}), -3);
  EXPECT_EQ(reduce_values<uint16_t>(target, DType::kU16, {65000, 1000}, {.divisor = 2}), 232);
  EXPECT_EQ(reduce_values<uint32_t>(target, DType::kU32, {4'000'000'000, 1}, {.divisor = 2}),
            2'000'000'000u);
  EXPECT_EQ(reduce_values<uint32_t>(target, DType::kU32, {UINT32_MAX, 2}, {.divisor = 1}), 1u);
  EXPECT_EQ(reduce_values<uint64_t>(target, DType::kU64, {UINT64_MAX, 2}, {.divisor = 1}), 1u);
  EXPECT_EQ(reduce_values<uint64_t>(target, DType::kU64, {UINT64_MAX, 0}, {.divisor = 3}),
            6148914691236517205u);
  EXPECT_EQ(reduce_values<uint64_t>(target, DType::kU64, {UINT64_MAX, 7}, {.op = ReduceOp::kMax}),
            UINT64_MAX)
      << "not compared as signed";
  EXPECT_EQ(reduce_values<uint16_t>(target, DType::kU16, {300, 300}, {.op = ReduceOp::kProduct}),
            24464);
  EXPECT_EQ(
      reduce_values<uint16_t>(target, DType::kU16, {0xf0f0, 0xff00}, {.op = ReduceOp::kBitAnd}),
      0xf000);
}

TEST_P(ReduceValues, MinimumAndMaximumOfFloats) {
  const auto f32 = [&](ReduceOp op, const std::vector<float>& values) {
    return reduce_values(GetParam(), DType::kF32, values, {.op = op});
  };
  for (const bool swapped : {false, true}) {
    const auto pair = [&](float a, float b) {
      return swapped ? std::vector<float>{b, a} : std::vector<float>{a, b};
    };
    EXPECT_EQ(f32(ReduceOp::kMin, pair(3, -2)), -2);
    EXPECT_EQ(f32(ReduceOp::kMax, pair(3, -2)), 3);
    EXPECT_TRUE(std::signbit(f32(ReduceOp::kMin, pair(-0.0f, 0.0f))));
    EXPECT_FALSE(std::signbit(f32(ReduceOp::kMax, pair(-0.0f, 0.0f))));
    EXPECT_TRUE(std::isnan(f32(ReduceOp::kMin, pair(NAN, 1))));
    EXPECT_TRUE(std::isnan(f32(ReduceOp::kMax, pair(NAN, INFINITY))));
    EXPECT_EQ(f32(ReduceOp::kMin, pair(INFINITY, -INFINITY)), -INFINITY);
  }
  EXPECT_EQ(reduce_values<double>(GetParam(), DType::kF64, {2, 5, -7, 4}, {.op = ReduceOp::kMin}),
            -7);
  EXPECT_EQ(reduce_values<uint16_t>(GetParam(), DType::kF16, {0x3c00, 0xbc00, 0x4000},
                                    {.op = ReduceOp::kMax}),
            0x4000);
}

TEST_P(ReduceValues, OperationsOnIntegers) {
  const auto i8 = [&](ReduceOp op, const std::vector<int8_t>& values, uint32_t divisor = 1) {
    return reduce_values(GetParam(), DType::kI8, values, {.op = op, .divisor = divisor});
  };
  EXPECT_EQ(i8(ReduceOp::kMin, {-128, 127, 5}), -128);
  EXPECT_EQ(i8(ReduceOp::kMax, {-128, 127, 5}), 127);
  EXPECT_EQ(i8(ReduceOp::kSum, {100, 100}), -56) << "wraps";
  EXPECT_EQ(i8(ReduceOp::kSum, {-7, 0}, 2), -3) << "truncates toward zero";
  EXPECT_EQ(i8(ReduceOp::kProduct, {-5, 30}), 106) << "-150 wraps";
  EXPECT_EQ(reduce_values<uint8_t>(GetParam(), DType::kU8, {200, 3}, {.op = ReduceOp::kMin}), 3);
  EXPECT_EQ(reduce_values<int64_t>(GetParam(), DType::kI64, {INT64_MIN, 7}, {.op = ReduceOp::kMax}),
            7);
  EXPECT_EQ(
      reduce_values<int32_t>(GetParam(), DType::kI32, {1 << 30, 4}, {.op = ReduceOp::kProduct}), 0);
  EXPECT_EQ(
      reduce_values<int32_t>(GetParam(), DType::kI32, {0b1100, 0b1010}, {.op = ReduceOp::kBitAnd}),
      0b1000);
  EXPECT_EQ(
      reduce_values<int32_t>(GetParam(), DType::kI32, {0b1100, 0b1010}, {.op = ReduceOp::kBitOr}),
      0b1110);
}

TEST_P(ReduceValues, TruthValues) {
  const auto all = [&](ReduceOp op, const std::vector<uint8_t>& values) {
    return reduce_values(GetParam(), DType::kBool, values, {.op = op});
  };
  for (const ReduceOp op : {ReduceOp::kBitAnd, ReduceOp::kMin}) {
    EXPECT_EQ(all(op, {1, 1, 0}), 0);
    EXPECT_EQ(all(op, {1, 1, 1}), 1);
  }
  for (const ReduceOp op : {ReduceOp::kBitOr, ReduceOp::kMax}) {
    EXPECT_EQ(all(op, {0, 1, 0}), 1);
    EXPECT_EQ(all(op, {0, 0, 0}), 0);
  }
}

// 0.1 is not a float: prescale is rounded to f32 first, then each product is rounded once.
TEST_P(ReduceValues, ScaleFactorsByHand) {
  EXPECT_EQ(
      reduce_values<float>(GetParam(), DType::kF32, {3, 4}, {.prescale = 0.5, .postscale = 8}), 28);
  EXPECT_EQ(reduce_values<float>(GetParam(), DType::kF32, {7}, {.prescale = 0.1}), 7.0f * 0.1f);
  // 40000 + 40000 overflows f16; the sum of their halves does not.
  EXPECT_EQ(reduce_values<uint16_t>(GetParam(), DType::kF16, {0x78e2, 0x78e2}, {.prescale = 0.5}),
            0x78e2);
  EXPECT_EQ(reduce_values<double>(GetParam(), DType::kF64, {1, 2}, {.divisor = 2, .postscale = 4}),
            6);
}

INSTANTIATE_TEST_SUITE_P(Reduce, ReduceValues,
                         ::testing::ValuesIn(reduce_targets().begin(), reduce_targets().end()),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace gradbus
