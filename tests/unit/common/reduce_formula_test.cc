// Tests reduce() on each SIMD target of this processor, and its scalar form, against the formula in
// wider arithmetic. Floats use 113-bit floats and round each step; integers use 128 bits. The order
// of floats is checked with their bits as integers.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "common/kernels/half.h"
#include "common/kernels/reduce.h"
#include "common/kernels/reduce_targets.h"
#include "tests/unit/common/reduce_target_names.h"

namespace gradbus {
namespace {

class ReduceFormula : public ::testing::TestWithParam<ReduceTarget> {};

// 113 bits: a sum or product of doubles is rounded only once.
#ifdef __SIZEOF_FLOAT128__
using Quad = __float128;
#else
using Quad = long double;  // Arm
#endif
using Wide = __int128;
using Unsigned = unsigned __int128;

template <typename T>
std::vector<T> reduce_vectors(const ReduceTarget& target, DType dtype, const Reduction& how,
                              const std::vector<std::vector<T>>& vectors) {
  std::vector<const std::byte*> sources(vectors.size());
  for (size_t s = 0; s < vectors.size(); ++s)
    sources[s] = std::as_bytes(std::span(vectors[s])).data();
  std::vector<T> result(vectors[0].size());
  std::byte* const targets[] = {std::as_writable_bytes(std::span(result)).data()};
  target.run(dtype, how, sources.data(), sources.size(), targets, 1, result.size());
  return result;
}

// ---- floats: sums and products with factors ---------------------------------------------------

template <typename T>
T combine_in_quad(ReduceOp op, T a, T b) {
  const Quad result = op == ReduceOp::kProduct ? Quad(a) * Quad(b) : Quad(a) + Quad(b);
  return static_cast<T>(result);
}

template <typename T>
T times_in_quad(T value, double factor) {
  return static_cast<T>(Quad(value) * Quad(static_cast<T>(factor)));
}

template <typename T>
void expect_formula(const ReduceTarget& target, DType dtype, const Reduction& how,
                    const std::vector<std::vector<T>>& vectors) {
  const std::vector<T> got = reduce_vectors(target, dtype, how, vectors);
  for (size_t i = 0; i < got.size(); ++i) {
    T want = times_in_quad(vectors[0][i], how.prescale);
    for (size_t s = 1; s < vectors.size(); ++s)
      want = combine_in_quad(how.op, want, times_in_quad(vectors[s][i], how.prescale));
    want = times_in_quad(want, how.postscale / how.divisor);
    EXPECT_TRUE(got[i] == want && std::signbit(got[i]) == std::signbit(want))
        << reduce_op_name(how.op) << " " << dtype_name(dtype) << " of " << vectors.size() << ": "
        << got[i] << " not " << want;
  }
}

template <typename T>
std::vector<std::vector<T>> random_floats(size_t sources, size_t count) {
  std::mt19937_64 random(sources * 1000 + count);
  std::normal_distribution<double> normal;
  std::vector<std::vector<T>> vectors(sources, std::vector<T>(count));
  for (auto& vector : vectors)
    for (T& value : vector) value = static_cast<T>(normal(random));
  return vectors;
}

TEST_P(ReduceFormula, FloatsAreRoundedOncePerStep) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct}) {
    for (size_t sources = 1; sources <= 5; ++sources) {
      for (const Reduction how : {Reduction{op}, Reduction{op, 3}, Reduction{op, 1, 0.1, 0.7},
                                  Reduction{op, 7, -1.3, 1e-3}, Reduction{op, 1, 1e-39, 1}}) {
        expect_formula(GetParam(), DType::kF32, how, random_floats<float>(sources, 157));
        expect_formula(GetParam(), DType::kF64, how, random_floats<double>(sources, 157));
      }
    }
  }
}

// ---- floats: the order ------------------------------------------------------------------------

// A format of `bits` bits whose infinity has the bits `infinity`.
struct Format {
  DType dtype;
  int bits;
  uint64_t infinity;
  uint64_t sign() const { return uint64_t{1} << (bits - 1); }
  uint64_t quiet_bit() const { return uint64_t{1} << (std::countr_zero(infinity) - 1); }
};

constexpr Format kFormats[] = {{DType::kF32, 32, 0x7f800000},
                               {DType::kF64, 64, 0x7ff0000000000000},
                               {DType::kF16, 16, 0x7c00},
                               {DType::kBF16, 16, 0x7f80}};

// Zeros, the smallest and largest subnormal and normal, one, Inf, a quiet and a signalling NaN.
std::vector<uint64_t> special_bits(const Format& format) {
  const uint64_t unit = uint64_t{1} << std::countr_zero(format.infinity);
  const uint64_t one = (format.infinity >> 1) / unit * unit;
  const uint64_t magnitudes[] = {0,
                                 1,
                                 unit - 1,
                                 unit,
                                 one,
                                 format.infinity - 1,
                                 format.infinity,
                                 format.infinity | 1,
                                 format.infinity | format.quiet_bit() | 3};
  std::vector<uint64_t> all;
  for (const uint64_t magnitude : magnitudes) {
    all.push_back(magnitude);
    all.push_back(magnitude | format.sign());
  }
  return all;
}

// Magnitudes are ordered as their bits. -0 is one below +0.
Wide place_in_order(const Format& format, uint64_t bits) {
  const Wide magnitude = bits & ~format.sign();
  return (bits & format.sign()) != 0 ? -magnitude - 1 : magnitude;
}

uint64_t extreme(const Format& format, ReduceOp op, uint64_t a, uint64_t b) {
  const auto nan = [&](uint64_t bits) { return (bits & ~format.sign()) > format.infinity; };
  if (nan(a) || nan(b)) return format.infinity | format.quiet_bit();
  const bool a_first = place_in_order(format, a) < place_in_order(format, b);
  return a_first == (op == ReduceOp::kMin) ? a : b;
}

template <typename Bits>
void expect_extremes(const ReduceTarget& target, const Format& format, ReduceOp op) {
  std::vector<std::vector<Bits>> vectors(3);
  std::vector<Bits> want;
  const std::vector<uint64_t> specials = special_bits(format);
  for (const uint64_t a : specials) {
    for (const uint64_t b : specials) {
      for (const uint64_t c : specials) {
        vectors[0].push_back(static_cast<Bits>(a));
        vectors[1].push_back(static_cast<Bits>(b));
        vectors[2].push_back(static_cast<Bits>(c));
        want.push_back(static_cast<Bits>(extreme(format, op, extreme(format, op, a, b), c)));
      }
    }
  }
  EXPECT_EQ(reduce_vectors(target, format.dtype, {.op = op}, vectors), want)
      << reduce_op_name(op) << " " << dtype_name(format.dtype);
}

TEST_P(ReduceFormula, MinimumAndMaximumOfAllSpecialTriples) {
  for (const Format& format : kFormats) {
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      if (format.bits == 16) expect_extremes<uint16_t>(GetParam(), format, op);
      if (format.bits == 32) expect_extremes<uint32_t>(GetParam(), format, op);
      if (format.bits == 64) expect_extremes<uint64_t>(GetParam(), format, op);
    }
  }
}

// A factor applies to the sources of a minimum before they are compared. NaN stays the quiet one.
TEST_P(ReduceFormula, MinimumOfNegatedSourcesIsNegatedMaximum) {
  const auto vectors = random_floats<float>(3, 99);
  auto want = reduce_vectors<float>(GetParam(), DType::kF32, {.op = ReduceOp::kMax}, vectors);
  const auto got = reduce_vectors<float>(
      GetParam(), DType::kF32, {.op = ReduceOp::kMin, .prescale = -1, .postscale = -1}, vectors);
  EXPECT_EQ(got, want);
}

// ---- integers ---------------------------------------------------------------------------------

template <typename T>
T integer_formula(const Reduction& how, const std::vector<std::vector<T>>& vectors, size_t i) {
  Wide result = Wide{0} + vectors[0][i];
  for (size_t s = 1; s < vectors.size(); ++s) {
    const Wide next = Wide{0} + vectors[s][i];
    switch (how.op) {
      case ReduceOp::kProduct: result = static_cast<Wide>(Unsigned(result) * Unsigned(next)); break;
      case ReduceOp::kMin: result = next < result ? next : result; break;
      case ReduceOp::kMax: result = next > result ? next : result; break;
      case ReduceOp::kBitAnd: result &= next; break;
      case ReduceOp::kBitOr: result |= next; break;
      default: result += next;
    }
  }
  return static_cast<T>(Wide{static_cast<T>(result)} / Wide{how.divisor});
}

template <typename T>
void expect_integers(const ReduceTarget& target, DType dtype, const Reduction& how,
                     size_t sources) {
  std::mt19937_64 random(sources);
  std::vector<std::vector<T>> vectors(sources, std::vector<T>(301));
  for (size_t i = 0; i < 301; ++i) {  // any bits, small numbers, and the ends of the range
    for (auto& vector : vectors) {
      const uint64_t bits = random();
      vector[i] = static_cast<T>(i % 3 == 0 ? bits : bits % 7);
      if (i % 3 == 2)
        vector[i] = bits % 2 == 0 ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
    }
  }
  std::vector<T> want;
  for (size_t i = 0; i < 301; ++i) want.push_back(integer_formula(how, vectors, i));
  EXPECT_EQ(reduce_vectors(target, dtype, how, vectors), want)
      << reduce_op_name(how.op) << " " << dtype_name(dtype) << " of " << sources << " by "
      << how.divisor;
}

TEST_P(ReduceFormula, IntegersWrapAndDivideTowardZero) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax,
                            ReduceOp::kBitAnd, ReduceOp::kBitOr}) {
    for (size_t sources = 1; sources <= 5; ++sources) {
      for (const uint32_t divisor : {1u, 2u, 3u, 5u, 255u, 65537u, 0xffffffffu}) {
        const Reduction how{.op = op, .divisor = divisor, .prescale = 2, .postscale = 2};
        expect_integers<int32_t>(GetParam(), DType::kI32, how, sources);
        expect_integers<int64_t>(GetParam(), DType::kI64, how, sources);
        expect_integers<uint8_t>(GetParam(), DType::kU8, how, sources);
        expect_integers<int8_t>(GetParam(), DType::kI8, how, sources);
        expect_integers<int16_t>(GetParam(), DType::kI16, how, sources);
        expect_integers<uint16_t>(GetParam(), DType::kU16, how, sources);
        expect_integers<uint32_t>(GetParam(), DType::kU32, how, sources);
        expect_integers<uint64_t>(GetParam(), DType::kU64, how, sources);
      }
    }
  }
}

// Divides multiples of the divisor and their neighbours, up to the ends of i32. A quotient computed
// with a reciprocal (49 * (1 / 49) < 1) or with too few bits would be one off.
TEST_P(ReduceFormula, QuotientsAtMultiplesAreExact) {
  for (const uint32_t divisor : {2u, 3u, 7u, 10u, 49u, 103u, 65537u, 0x7fffffffu}) {
    const Reduction how{.op = ReduceOp::kSum, .divisor = divisor};
    std::vector<int32_t> values, want;
    for (const int64_t quotient : {1u, 2u, 3u, 49u, 1000u, 0x7fffffffu / divisor}) {
      for (const int64_t offset : {-1, 0, 1}) {
        const int64_t value = quotient * divisor + offset;
        if (value > INT32_MAX) continue;
        values.insert(values.end(), {static_cast<int32_t>(value), static_cast<int32_t>(-value)});
        const int64_t quotient_of = value / int64_t{divisor};
        want.insert(want.end(),
                    {static_cast<int32_t>(quotient_of), static_cast<int32_t>(-quotient_of)});
      }
    }
    EXPECT_EQ(reduce_vectors<int32_t>(GetParam(), DType::kI32, how, {values}), want) << divisor;
  }
}

// The same up to the end of u32, whose upper half does not fit i32.
TEST_P(ReduceFormula, QuotientsOfUnsignedNumbersAreExact) {
  for (const uint32_t divisor : {2u, 3u, 7u, 49u, 65537u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
    std::vector<uint32_t> values, want;
    for (const uint64_t quotient : {1u, 2u, 49u, 1000u, 0xffffffffu / divisor}) {
      for (const int64_t offset : {-1, 0, 1}) {
        const uint64_t value = quotient * divisor + static_cast<uint64_t>(offset);
        if (value > UINT32_MAX) continue;
        values.push_back(static_cast<uint32_t>(value));
        want.push_back(static_cast<uint32_t>(value / divisor));
      }
    }
    const Reduction how{.op = ReduceOp::kSum, .divisor = divisor};
    EXPECT_EQ(reduce_vectors<uint32_t>(GetParam(), DType::kU32, how, {values}), want) << divisor;
  }
}

INSTANTIATE_TEST_SUITE_P(Reduce, ReduceFormula,
                         ::testing::ValuesIn(reduce_targets().begin(), reduce_targets().end()),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace gradbus
