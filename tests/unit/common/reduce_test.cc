// reduce(): each SIMD target this processor has against reduce_scalar(), bit for bit, and both
// against values worked by hand.
#include "common/kernels/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "common/kernels/half.h"
#include "common/kernels/reduce_targets.h"

namespace gradbus {
namespace {

using Bytes = std::vector<std::byte>;

constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16,
                             DType::kI32, DType::kI64, DType::kU8};
constexpr std::byte kCanary{0xa5};
constexpr size_t kCanaryBytes = 128;

// A vector at a chosen misalignment. Nothing lies behind it, so that ASan sees an element too many;
// a guarded one keeps canaries on both sides instead.
class Buffer {
 public:
  Buffer(size_t bytes, size_t offset, bool guarded)
      : offset_(offset),
        tail_(guarded ? kCanaryBytes : 0),
        storage_(offset + bytes + tail_, kCanary) {}

  std::byte* data() { return storage_.data() + offset_; }
  Bytes content() const { return {storage_.begin() + offset_, storage_.end() - tail_}; }
  bool canaries_intact() const {
    const auto intact = [](std::byte byte) { return byte == kCanary; };
    return std::all_of(storage_.begin(), storage_.begin() + offset_, intact) &&
           std::all_of(storage_.end() - tail_, storage_.end(), intact);
  }

 private:
  ptrdiff_t offset_;
  ptrdiff_t tail_;
  Bytes storage_;
};

template <typename T>
T element(const Bytes& bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

bool is_nan(DType dtype, const Bytes& bytes, size_t i) {
  switch (dtype) {
    case DType::kF32: return std::isnan(element<float>(bytes, i));
    case DType::kF64: return std::isnan(element<double>(bytes, i));
    case DType::kF16: return std::isnan(f32_from_f16(element<uint16_t>(bytes, i)));
    case DType::kBF16: return std::isnan(f32_from_bf16(element<uint16_t>(bytes, i)));
    default: return false;
  }
}

// Equal bits, or both NaN: which of two NaNs a sum keeps is the processor's choice.
::testing::AssertionResult same(DType dtype, const Bytes& got, const Bytes& want) {
  const size_t width = dtype_bytes(dtype);
  if (got.size() != want.size()) return ::testing::AssertionFailure() << "sizes differ";
  for (size_t i = 0; i < want.size() / width; ++i) {
    const bool equal = std::memcmp(&got[i * width], &want[i * width], width) == 0;
    if (!equal && !(is_nan(dtype, got, i) && is_nan(dtype, want, i))) {
      return ::testing::AssertionFailure() << dtype_name(dtype) << " differs at element " << i;
    }
  }
  return ::testing::AssertionSuccess();
}

// Half of the elements are any bits (NaN, Inf, subnormals, extremes), half are near 1 so that sums
// round instead of being swallowed.
void fill(DType dtype, std::byte* data, size_t count, std::mt19937_64& random) {
  const size_t width = dtype_bytes(dtype);
  for (size_t i = 0; i < count; ++i) {
    uint64_t bits = random();
    const auto near_one = static_cast<float>(static_cast<int64_t>(bits)) * 0x1p-63f;
    if (dtype == DType::kF32 && i % 2 == 0) bits = std::bit_cast<uint32_t>(near_one);
    if (dtype == DType::kF64 && i % 2 == 0) bits = std::bit_cast<uint64_t>(double{near_one} / 3);
    if (dtype == DType::kF16 && i % 2 == 0) bits = f16_from_f32(near_one);
    if (dtype == DType::kBF16 && i % 2 == 0) bits = bf16_from_f32(near_one);
    std::memcpy(data + i * width, &bits, width);
  }
}

struct Shape {
  DType dtype;
  size_t sources;
  size_t targets;
  size_t count;
  size_t offset;
  uint32_t divisor;
  bool in_place;
};

std::string describe(const ReduceTarget& target, const Shape& shape) {
  return std::string(target.name) + " " + std::string(dtype_name(shape.dtype)) + " " +
         std::to_string(shape.sources) + "->" + std::to_string(shape.targets) + " count " +
         std::to_string(shape.count) + " offset " + std::to_string(shape.offset) + " divisor " +
         std::to_string(shape.divisor) + (shape.in_place ? " in place" : "");
}

// One case's vectors, filled from a seed: the same for every target.
class Case {
 public:
  explicit Case(const Shape& shape) : shape_(shape) {
    std::mt19937_64 random(shape.count * 31 + shape.sources);
    const size_t bytes = shape.count * dtype_bytes(shape.dtype);
    for (size_t s = 0; s < shape.sources; ++s) {
      buffers_.emplace_back(bytes, (shape.offset + s) % 64, shape.in_place);
      fill(shape.dtype, buffers_.back().data(), shape.count, random);
    }
    const size_t fresh = shape.in_place ? 0 : shape.targets;
    for (size_t t = 0; t < fresh; ++t) buffers_.emplace_back(bytes, (shape.offset + t) % 64, true);
  }

  void run(ReduceKernel kernel) {
    std::vector<const std::byte*> sources;
    std::vector<std::byte*> targets;
    for (size_t s = 0; s < shape_.sources; ++s) sources.push_back(buffers_[s].data());
    for (size_t t = 0; t < shape_.targets; ++t) targets.push_back(target(t).data());
    kernel(shape_.dtype, sources.data(), sources.size(), targets.data(), targets.size(),
           shape_.count, shape_.divisor);
  }

  Buffer& target(size_t t) { return buffers_[shape_.in_place ? t : shape_.sources + t]; }

 private:
  Shape shape_;
  std::vector<Buffer> buffers_;
};

void scalar(DType dtype, const std::byte* const* sources, size_t source_count,
            std::byte* const* targets, size_t target_count, size_t count, uint32_t divisor) {
  reduce_scalar(dtype, {sources, source_count}, {targets, target_count}, count, divisor);
}

void compare_with_scalar(const ReduceTarget& target, const Shape& shape) {
  SCOPED_TRACE(describe(target, shape));
  Case expected(shape);
  expected.run(scalar);
  Case actual(shape);
  actual.run(target.run);
  for (size_t t = 0; t < shape.targets; ++t) {
    EXPECT_TRUE(same(shape.dtype, actual.target(t).content(), expected.target(t).content()));
    EXPECT_TRUE(actual.target(t).canaries_intact());
  }
}

// Around vector and tile lengths (1024 sums of 4 bytes, 512 of 8, 4096 of 1).
constexpr size_t kCounts[] = {0,  1,  2,   3,   7,   8,    9,    15,   16,   17,   31,   33,  63,
                              64, 65, 511, 512, 513, 1023, 1024, 1025, 2049, 4095, 4096, 4097};

class EachTarget : public ::testing::TestWithParam<ReduceTarget> {};

TEST_P(EachTarget, EqualsScalarForEveryShape) {
  for (const DType dtype : kDTypes) {
    for (const size_t count : kCounts) {
      for (size_t sources = 1; sources <= 9; ++sources) {
        const size_t targets = 1 + (count + sources) % 3;
        const uint32_t divisor = sources % 2 == 0 ? 1 : 1 + static_cast<uint32_t>(count) % 7;
        compare_with_scalar(GetParam(),
                            {dtype, sources, targets, count, count % 64, divisor, false});
      }
    }
  }
}

TEST_P(EachTarget, EqualsScalarInPlace) {
  for (const DType dtype : kDTypes) {
    for (const size_t count : {1u, 17u, 1000u, 1025u, 5000u}) {
      for (size_t ranks = 1; ranks <= 9; ++ranks) {
        for (const size_t targets : {size_t{1}, ranks}) {
          const auto divisor = static_cast<uint32_t>(targets);
          compare_with_scalar(GetParam(), {dtype, ranks, targets, count, 5, divisor, true});
        }
      }
    }
  }
}

TEST_P(EachTarget, EqualsScalarForTheHotPairAtEveryOffset) {
  for (const DType dtype : kDTypes) {
    for (size_t offset = 0; offset < 64; ++offset) {
      for (const uint32_t divisor : {1u, 2u, 3u}) {
        compare_with_scalar(GetParam(), {dtype, 2, 2, 77, offset, divisor, true});
        compare_with_scalar(GetParam(), {dtype, 2, 1, 77, offset, divisor, false});
      }
    }
  }
}

// Every f16 and every bf16 in the first source, against partners that make sums land on, above and
// below rounding points: subnormals, ones, and the ends of the range.
TEST_P(EachTarget, EqualsScalarForEveryHalf) {
  constexpr uint16_t kPartners[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x1400, 0x3c00, 0x3f80,
                                    0x3b80, 0xbc01, 0x4c00, 0x7bff, 0xfbff, 0x7c00, 0x7f7f, 0x7b00};
  std::vector<uint16_t> all(0x10000);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const uint16_t partner : kPartners) {
      const std::vector<uint16_t> other(all.size(), partner);
      const std::byte* sources[] = {std::as_bytes(std::span(all)).data(),
                                    std::as_bytes(std::span(other)).data()};
      Bytes got(all.size() * 2), want(all.size() * 2);
      std::byte* const got_target[] = {got.data()};
      std::byte* const want_target[] = {want.data()};
      GetParam().run(dtype, sources, 2, got_target, 1, all.size(), 2);
      scalar(dtype, sources, 2, want_target, 1, all.size(), 2);
      EXPECT_TRUE(same(dtype, got, want)) << GetParam().name << " partner " << partner;
    }
  }
}

// ---- worked by hand ---------------------------------------------------------------------------

// Reduces one-element vectors. They are repeated to 41 elements, so that both whole vectors and the
// remainder compute the value, and all 41 must agree.
template <typename T>
T reduce_values(const ReduceTarget& target, DType dtype, std::vector<T> values, uint32_t divisor) {
  constexpr size_t kRepeat = 41;
  std::vector<std::vector<T>> vectors;
  std::vector<const std::byte*> sources;
  for (const T value : values) vectors.emplace_back(kRepeat, value);
  for (const auto& vector : vectors) sources.push_back(std::as_bytes(std::span(vector)).data());
  std::vector<T> result(kRepeat);
  std::byte* const targets[] = {std::as_writable_bytes(std::span(result)).data()};
  target.run(dtype, sources.data(), sources.size(), targets, 1, kRepeat, divisor);
  for (const T& each : result) EXPECT_EQ(std::memcmp(&each, &result[0], sizeof(T)), 0);
  return result[0];
}

TEST_P(EachTarget, F16RoundsOnceToNearestEven) {
  const auto f16 = [&](std::vector<uint16_t> values, uint32_t divisor = 1) {
    return reduce_values(GetParam(), DType::kF16, values, divisor);
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

TEST_P(EachTarget, F16KeepsNanAndInf) {
  const auto f16 = [&](std::vector<uint16_t> values) {
    return reduce_values(GetParam(), DType::kF16, values, 2);
  };
  EXPECT_EQ(f16({0x7c00, 0x3c00}), 0x7c00);
  EXPECT_EQ(f16({0xfc00, 0x3c00}), 0xfc00);
  EXPECT_GT(f16({0x7c00, 0xfc00}) & 0x7fff, 0x7c00);  // Inf - Inf
  EXPECT_GT(f16({0x7c01, 0x3c00}) & 0x7fff, 0x7c00);
}

TEST_P(EachTarget, BF16RoundsOnceToNearestEven) {
  const auto bf16 = [&](std::vector<uint16_t> values, uint32_t divisor = 1) {
    return reduce_values(GetParam(), DType::kBF16, values, divisor);
  };
  EXPECT_EQ(bf16({0x3f80, 0x3b80}), 0x3f80);          // 1 + 2^-8: tie, down to even
  EXPECT_EQ(bf16({0x3f81, 0x3b80}), 0x3f82);          // 1 + 2^-7 + 2^-8: tie, up to even
  EXPECT_EQ(bf16({0x4380, 0x3f80, 0x3f80}), 0x4381);  // 256 + 1 + 1 = 258: no rounding between
  EXPECT_EQ(bf16({0x7f7f, 0x7b00}), 0x7f80);          // largest + half a unit: Inf
  EXPECT_EQ(bf16({0x0001, 0x0000}, 2), 0x0000);       // half of the smallest subnormal
  EXPECT_EQ(bf16({0x0003, 0x0000}, 2), 0x0002);       // 1.5 units: tie, up to even
  EXPECT_EQ(bf16({0x8000, 0x8000}), 0x8000);          // -0 + -0 = -0
}

TEST_P(EachTarget, BF16KeepsNanAndInf) {
  const auto bf16 = [&](std::vector<uint16_t> values) {
    return reduce_values(GetParam(), DType::kBF16, values, 2);
  };
  EXPECT_EQ(bf16({0x7f80, 0x3f80}), 0x7f80);
  EXPECT_EQ(bf16({0xff80, 0x3f80}), 0xff80);
  EXPECT_GT(bf16({0x7f80, 0xff80}) & 0x7fff, 0x7f80);  // Inf - Inf
  EXPECT_GT(bf16({0x7f81, 0x3f80}) & 0x7fff, 0x7f80);
}

TEST_P(EachTarget, FloatsAddInSourceOrder) {
  const auto f32 = [&](std::vector<float> values) {
    return reduce_values(GetParam(), DType::kF32, values, 1);
  };
  EXPECT_EQ(f32({1e8f, 1, -1e8f}), 0);  // 1e8 swallows 1
  EXPECT_EQ(f32({1e8f, -1e8f, 1}), 1);
  EXPECT_EQ(f32({1, 2, 3, 1e8f, -1e8f, 1, 2, 3, 4}), 18);  // 6 + 1e8 = 100000008, a multiple of 8
  EXPECT_EQ(f32({-0.0f, -0.0f}), 0);
  EXPECT_TRUE(std::signbit(f32({-0.0f, -0.0f})));
  EXPECT_TRUE(std::isnan(f32({INFINITY, -INFINITY})));
}

TEST_P(EachTarget, FloatsAreMultipliedByTheReciprocal) {
  // 1/3 in f32 is 0x3eaaaaab; 49 * (1/49) in f64 is one unit below 1, 49 / 49 would be 1.
  EXPECT_EQ(reduce_values<float>(GetParam(), DType::kF32, {1, 0}, 3), 0x1.555556p-2f);
  EXPECT_EQ(reduce_values<double>(GetParam(), DType::kF64, {40, 9}, 49), 0x1.fffffffffffffp-1);
}

TEST_P(EachTarget, IntegersWrapAndTruncateTowardZero) {
  const ReduceTarget& target = GetParam();
  EXPECT_EQ(reduce_values<int32_t>(target, DType::kI32, {INT32_MAX, 1}, 1), INT32_MIN);
  EXPECT_EQ(reduce_values<int32_t>(target, DType::kI32, {-4, -3}, 2), -3);
  EXPECT_EQ(reduce_values<int32_t>(target, DType::kI32, {4, 3}, 2), 3);
  EXPECT_EQ(reduce_values<int32_t>(target, DType::kI32, {INT32_MIN, 0}, 4'000'000'000), 0);
  EXPECT_EQ(reduce_values<int64_t>(target, DType::kI64, {INT64_MAX, 1}, 1), INT64_MIN);
  EXPECT_EQ(reduce_values<int64_t>(target, DType::kI64, {INT64_MIN, 0}, 3), -3074457345618258602);
  EXPECT_EQ(reduce_values<uint8_t>(target, DType::kU8, {200, 100}, 1), 44);
  EXPECT_EQ(reduce_values<uint8_t>(target, DType::kU8, {200, 100}, 3), 14);
  EXPECT_EQ(reduce_values<uint8_t>(target, DType::kU8, {200, 50}, 1000), 0);
}

INSTANTIATE_TEST_SUITE_P(Reduce, EachTarget,
                         ::testing::ValuesIn(reduce_targets().begin(), reduce_targets().end()),
                         [](const auto& row) { return std::string(row.param.name); });

// ---- the choice -------------------------------------------------------------------------------

TEST(ReduceTest, ScalarIsAlwaysTheLastTarget) {
  ASSERT_FALSE(reduce_targets().empty());
  EXPECT_EQ(reduce_targets().back().name, "scalar");
}

#if defined(__x86_64__)
TEST(ReduceTest, TakesTheWidestVectorsTheProcessorHas) {
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    EXPECT_EQ(reduce_targets().front().name, "avx512");
  } else if (__builtin_cpu_supports("avx2")) {
    EXPECT_EQ(reduce_targets().front().name, "avx2");
  }
}
#endif

TEST(ReduceTest, CopiesASingleSourceBitForBit) {
  const uint16_t source[] = {0x7c01, 0x0001, 0x8000};  // a signalling NaN too
  uint16_t first[3] = {}, second[3] = {};
  const std::byte* const sources[] = {std::as_bytes(std::span(source)).data()};
  std::byte* const targets[] = {std::as_writable_bytes(std::span(first)).data(),
                                std::as_writable_bytes(std::span(second)).data()};
  reduce(DType::kF16, sources, targets, 3, 1);
  EXPECT_EQ(std::memcmp(first, source, sizeof(source)), 0);
  EXPECT_EQ(std::memcmp(second, source, sizeof(source)), 0);
}

TEST(ReduceTest, AveragesTwoRanksInPlace) {
  float first[] = {1, 2, 3}, second[] = {3, 6, -3};
  std::byte* const areas[] = {std::as_writable_bytes(std::span(first)).data(),
                              std::as_writable_bytes(std::span(second)).data()};
  const std::byte* const sources[] = {areas[0], areas[1]};
  reduce(DType::kF32, sources, areas, 3, 2);
  for (const float* area : {first, second}) {
    EXPECT_EQ(area[0], 2);
    EXPECT_EQ(area[1], 4);
    EXPECT_EQ(area[2], 0);
  }
}

}  // namespace
}  // namespace gradbus
