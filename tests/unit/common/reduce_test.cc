// Compares reduce() on each SIMD target of this processor with reduce_scalar(), bit for bit.
// reduce_values_test.cc checks the values themselves.
#include "common/kernels/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "common/kernels/half.h"
#include "common/kernels/reduce_targets.h"
#include "tests/unit/common/reduce_target_names.h"

namespace gradbus {
namespace {

using Bytes = std::vector<std::byte>;

constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI32,
                             DType::kI64, DType::kU8,  DType::kI8,  DType::kI16,  DType::kU16,
                             DType::kU32, DType::kU64, DType::kBool};
static_assert(std::size(kDTypes) == kDTypeLast);
constexpr std::span kNumbers(kDTypes, kDTypeLast - 1);  // no bool
constexpr std::span kIntegers = kNumbers.subspan(4);
constexpr ReduceOp kOps[] = {ReduceOp::kSum,     ReduceOp::kMin,    ReduceOp::kMax,
                             ReduceOp::kProduct, ReduceOp::kBitAnd, ReduceOp::kBitOr};
constexpr std::byte kCanary{0xa5};
constexpr size_t kCanaryBytes = 128;

// A vector at a chosen misalignment. It has no memory behind it, so that ASan detects an access
// beyond its end. A guarded vector has canaries on both sides instead.
class Buffer {
 public:
  Buffer(size_t bytes, size_t offset, bool guarded)
      : offset_(static_cast<ptrdiff_t>(offset)),
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

// Expects equal bits. For a sum or a product two NaNs are equal too, because the processor chooses
// which of two NaNs it keeps.
::testing::AssertionResult same(ReduceOp op, DType dtype, const Bytes& got, const Bytes& want) {
  const bool any_nan = op == ReduceOp::kSum || op == ReduceOp::kProduct;
  const size_t width = dtype_bytes(dtype);
  if (got.size() != want.size()) return ::testing::AssertionFailure() << "sizes differ";
  for (size_t i = 0; i < want.size() / width; ++i) {
    const bool equal = std::memcmp(&got[i * width], &want[i * width], width) == 0;
    if (!equal && !(any_nan && is_nan(dtype, got, i) && is_nan(dtype, want, i))) {
      return ::testing::AssertionFailure() << dtype_name(dtype) << " differs at element " << i;
    }
  }
  return ::testing::AssertionSuccess();
}

// Half of the elements are random bits (NaN, Inf, subnormals, extremes). The others are near 1, so
// that sums round instead of losing small values.
void fill(DType dtype, std::byte* data, size_t count, std::mt19937_64& random) {
  const size_t width = dtype_bytes(dtype);
  for (size_t i = 0; i < count; ++i) {
    uint64_t bits = random();
    const auto near_one = static_cast<float>(static_cast<int64_t>(bits)) * 0x1p-63f;
    if (dtype == DType::kF32 && i % 2 == 0) bits = std::bit_cast<uint32_t>(near_one);
    if (dtype == DType::kF64 && i % 2 == 0) bits = std::bit_cast<uint64_t>(double{near_one} / 3);
    if (dtype == DType::kF16 && i % 2 == 0) bits = f16_from_f32(near_one);
    if (dtype == DType::kBF16 && i % 2 == 0) bits = bf16_from_f32(near_one);
    if (dtype == DType::kBool) bits &= 1;
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
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1;
  double postscale = 1;

  Reduction reduction() const { return {op, divisor, prescale, postscale}; }
};

std::string describe(const ReduceTarget& target, const Shape& shape) {
  return std::string(target.name) + " " + std::string(reduce_op_name(shape.op)) + " " +
         std::string(dtype_name(shape.dtype)) + " " + std::to_string(shape.sources) + "->" +
         std::to_string(shape.targets) + " count " + std::to_string(shape.count) + " offset " +
         std::to_string(shape.offset) + " divisor " + std::to_string(shape.divisor) + " before " +
         std::to_string(shape.prescale) + " after " + std::to_string(shape.postscale) +
         (shape.in_place ? " in place" : "");
}

// The vectors of one case, filled from a seed: equal for every target.
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
    kernel(shape_.dtype, shape_.reduction(), sources.data(), sources.size(), targets.data(),
           targets.size(), shape_.count);
  }

  Buffer& target(size_t t) { return buffers_[shape_.in_place ? t : shape_.sources + t]; }

 private:
  Shape shape_;
  std::vector<Buffer> buffers_;
};

void compare_with_scalar(const ReduceTarget& target, const Shape& shape) {
  SCOPED_TRACE(describe(target, shape));
  Case expected(shape);
  expected.run(reduce_one_by_one);
  Case actual(shape);
  actual.run(target.run);
  for (size_t t = 0; t < shape.targets; ++t) {
    EXPECT_TRUE(
        same(shape.op, shape.dtype, actual.target(t).content(), expected.target(t).content()));
    EXPECT_TRUE(actual.target(t).canaries_intact());
  }
}

// Lengths around vector and tile sizes (1024 sums of 4 bytes, 512 of 8, 4096 of 1).
constexpr size_t kCounts[] = {0,  1,  2,   3,   7,   8,    9,    15,   16,   17,   31,   33,  63,
                              64, 65, 511, 512, 513, 1023, 1024, 1025, 2049, 4095, 4096, 4097};

class EachTarget : public ::testing::TestWithParam<ReduceTarget> {};

TEST_P(EachTarget, EqualsScalarForEveryShape) {
  for (const DType dtype : kNumbers) {
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
  for (const DType dtype : kNumbers) {
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
  for (const DType dtype : kNumbers) {
    for (size_t offset = 0; offset < 64; ++offset) {
      for (const uint32_t divisor : {1u, 2u, 3u}) {
        compare_with_scalar(GetParam(), {dtype, 2, 2, 77, offset, divisor, true});
        compare_with_scalar(GetParam(), {dtype, 2, 1, 77, offset, divisor, false});
      }
    }
  }
}

// Every operation with every dtype that it supports, with and without factors and divisor. The
// loops for pairs, for many sources and for the rest of a block treat each of these separately.
TEST_P(EachTarget, EqualsScalarForEveryOperation) {
  for (const ReduceOp op : kOps) {
    for (const DType dtype : kDTypes) {
      if (!op_fits_dtype(op, dtype)) continue;
      for (const size_t count : kCounts) {
        const size_t sources = 1 + count % 5;
        const uint32_t divisor = dtype == DType::kBool ? 1 : 1 + sources % 3;
        compare_with_scalar(GetParam(),
                            {dtype, sources, 1 + count % 3, count, count % 64, 1, false, op});
        compare_with_scalar(GetParam(), {dtype, 2, 2, count, 7, divisor, true, op});
        compare_with_scalar(GetParam(), {dtype, sources, 1, count, 9, divisor, false, op, -0.3});
        compare_with_scalar(GetParam(), {dtype, 3, 3, count, 11, 1, true, op, 1.7, 1.0 / 7});
      }
    }
  }
}

// A factor that f32 rounds to 1 changes f64 results but no f32 results. Other factors are extremes.
// One is a NaN with all bits set, which a carry in rounding could turn into a number.
TEST_P(EachTarget, EqualsScalarForOddFactors) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
      for (const double factor :
           {1 + 1e-12, 0.0, -0.0, 1e-42, 1e300, HUGE_VAL, std::nan("0x7ffffffffffff")}) {
        compare_with_scalar(GetParam(), {dtype, 2, 1, 333, 3, 1, false, op, factor, 1});
        compare_with_scalar(GetParam(), {dtype, 2, 1, 333, 3, 1, false, op, 1, factor});
        compare_with_scalar(GetParam(), {dtype, 3, 3, 65, 3, 7, true, op, factor, factor});
      }
    }
  }
}

// Divides all values of `Number` by the divisor.
template <typename Number>
void compare_quotients(const ReduceTarget& target, DType dtype, uint32_t divisor) {
  std::vector<Number> all(size_t{1} << (8 * sizeof(Number)));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Number>(i);
  const std::byte* const sources[] = {std::as_bytes(std::span(all)).data()};
  std::vector<Number> got(all.size()), want(all.size());
  std::byte* const got_target[] = {std::as_writable_bytes(std::span(got)).data()};
  std::byte* const want_target[] = {std::as_writable_bytes(std::span(want)).data()};
  target.run(dtype, {.divisor = divisor}, sources, 1, got_target, 1, all.size());
  reduce_one_by_one(dtype, {.divisor = divisor}, sources, 1, want_target, 1, all.size());
  EXPECT_TRUE(got == want) << dtype_name(dtype) << " divisor " << divisor;
}

TEST_P(EachTarget, EqualsScalarForEveryQuotientOfBytesAndShorts) {
  for (const DType dtype : {DType::kU8, DType::kI8})
    for (uint32_t divisor = 1; divisor < 260; ++divisor)
      compare_quotients<uint8_t>(GetParam(), dtype, divisor);
  for (const DType dtype : {DType::kU16, DType::kI16}) {
    for (uint32_t divisor = 1; divisor < 66'000; divisor += 1 + divisor / 16)
      compare_quotients<uint16_t>(GetParam(), dtype, divisor);
    for (const uint32_t divisor : {32767u, 32768u, 32769u, 65535u, 65536u, 65537u})
      compare_quotients<uint16_t>(GetParam(), dtype, divisor);
  }
}

TEST_P(EachTarget, EqualsScalarForLargeDivisors) {
  for (const DType dtype : kIntegers) {
    for (const uint32_t divisor : {4096u, 32768u, 65535u, 65536u, 65537u, 16777217u, 0x7fffffffu,
                                   0x80000000u, 0xffffffffu}) {
      compare_with_scalar(GetParam(), {dtype, 2, 1, 777, 0, divisor, false});
    }
  }
}

// Every f16 and every bf16 as the first source. Their partners make sums on, above and below
// rounding points: subnormals, ones, the ends of the range, and a signalling NaN of each.
TEST_P(EachTarget, EqualsScalarForEveryHalf) {
  constexpr uint16_t kPartners[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x1400,
                                    0x3c00, 0x3f80, 0x3b80, 0xbc01, 0x4c00, 0x7bff,
                                    0xfbff, 0x7c00, 0x7f7f, 0x7b00, 0x7c01, 0xff81};
  std::vector<uint16_t> all(0x10000);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      for (const uint16_t partner : kPartners) {
        const std::vector<uint16_t> other(all.size(), partner);
        const std::byte* sources[] = {std::as_bytes(std::span(all)).data(),
                                      std::as_bytes(std::span(other)).data()};
        Bytes got(all.size() * 2), want(all.size() * 2);
        std::byte* const got_target[] = {got.data()};
        std::byte* const want_target[] = {want.data()};
        const Reduction how{.op = op, .divisor = op == ReduceOp::kSum ? 2u : 1u};
        GetParam().run(dtype, how, sources, 2, got_target, 1, all.size());
        reduce_one_by_one(dtype, how, sources, 2, want_target, 1, all.size());
        EXPECT_TRUE(same(op, dtype, got, want)) << reduce_op_name(op) << " partner " << partner;
      }
    }
  }
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
  const uint16_t source[] = {0x7c01, 0x0001, 0x8000};  // with a signalling NaN
  uint16_t first[3] = {}, second[3] = {};
  const std::byte* const sources[] = {std::as_bytes(std::span(source)).data()};
  std::byte* const targets[] = {std::as_writable_bytes(std::span(first)).data(),
                                std::as_writable_bytes(std::span(second)).data()};
  reduce(DType::kF16, {}, sources, targets, 3);
  EXPECT_EQ(std::memcmp(first, source, sizeof(source)), 0);
  EXPECT_EQ(std::memcmp(second, source, sizeof(source)), 0);
}

TEST(ReduceTest, AveragesTwoRanksInPlace) {
  float first[] = {1, 2, 3}, second[] = {3, 6, -3};
  std::byte* const rank_buffers[] = {std::as_writable_bytes(std::span(first)).data(),
                                     std::as_writable_bytes(std::span(second)).data()};
  const std::byte* const sources[] = {rank_buffers[0], rank_buffers[1]};
  reduce(DType::kF32, {.divisor = 2}, sources, rank_buffers, 3);
  for (const float* rank_buffer : {first, second}) {
    EXPECT_EQ(rank_buffer[0], 2);
    EXPECT_EQ(rank_buffer[1], 4);
    EXPECT_EQ(rank_buffer[2], 0);
  }
}

}  // namespace
}  // namespace gradbus
