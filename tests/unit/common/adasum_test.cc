// Tests of Adasum: the formula in long double, vectors worked by hand, equal bits from every SIMD
// target of this processor, and the tree as rounds of neighbours.
#include "common/kernels/adasum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "common/kernels/half.h"
#include "common/kernels/reduce_targets.h"
#include "tests/unit/common/reduce_target_names.h"

namespace gradbus {
namespace {

using Bytes = std::vector<std::byte>;

constexpr DType kFloats[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};

// A vector at an odd address without memory behind it.
class Vector {
 public:
  Vector(DType dtype, size_t count) : dtype_(dtype), bytes_(1 + count * dtype_bytes(dtype)) {}
  Vector(DType dtype, const std::vector<double>& values) : Vector(dtype, values.size()) {
    for (size_t i = 0; i < values.size(); ++i) set(i, values[i]);
  }

  std::byte* data() { return bytes_.data() + 1; }
  const std::byte* data() const { return bytes_.data() + 1; }
  const Bytes& bytes() const { return bytes_; }

  double operator[](size_t i) const {
    if (dtype_ == DType::kF64) return get<double>(i);
    if (dtype_ == DType::kF32) return double{get<float>(i)};
    if (dtype_ == DType::kF16) return double{f32_from_f16(get<uint16_t>(i))};
    return double{f32_from_bf16(get<uint16_t>(i))};
  }
  void set(size_t i, double value) {
    const auto single = static_cast<float>(value);
    if (dtype_ == DType::kF64) put(i, value);
    if (dtype_ == DType::kF32) put(i, single);
    if (dtype_ == DType::kF16) put(i, f16_from_f32(single));
    if (dtype_ == DType::kBF16) put(i, bf16_from_f32(single));
  }

 private:
  template <typename T>
  T get(size_t i) const {
    T value;
    std::memcpy(&value, data() + i * sizeof(T), sizeof(T));
    return value;
  }
  template <typename T>
  void put(size_t i, T value) {
    std::memcpy(data() + i * sizeof(T), &value, sizeof(T));
  }

  DType dtype_;
  Bytes bytes_;
};

Vector random_vector(DType dtype, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0.25);
  Vector vector(dtype, count);
  for (size_t i = 0; i < count; ++i) vector.set(i, normal(random));
  return vector;
}

// Half a unit in the last place of 1.
double rounding_error(DType dtype) {
  switch (dtype) {
    case DType::kF32: return 0x1p-24;
    case DType::kF64: return 0x1p-53;
    case DType::kF16: return 0x1p-11;
    default: return 0x1p-8;
  }
}

class Adasum : public ::testing::TestWithParam<ReduceTarget> {
 protected:
  Vector pair(DType dtype, const std::vector<double>& a, const std::vector<double>& b) {
    Vector target(dtype, a.size());
    adasum_pair_on(GetParam(), dtype, Vector(dtype, a).data(), Vector(dtype, b).data(),
                   target.data(), a.size());
    return target;
  }
};

TEST_P(Adasum, ByHand) {
  for (const DType dtype : kFloats) {
    const Vector orthogonal = pair(dtype, {3, 0, 1}, {0, -2, 0});  // the sum
    EXPECT_EQ(orthogonal[0], 3);
    EXPECT_EQ(orthogonal[1], -2);
    EXPECT_EQ(orthogonal[2], 1);
    EXPECT_EQ(pair(dtype, {2, 4}, {2, 4})[1], 4);    // equal: the average
    EXPECT_EQ(pair(dtype, {1, 0}, {-1, 0})[0], 0);   // opposite: 1.5 - 1.5
    EXPECT_EQ(pair(dtype, {1, 0}, {4, 0})[0], 2.5);  // (1 - 4/2) 1 + (1 - 4/32) 4 = -1 + 3.5
    EXPECT_EQ(pair(dtype, {0, 0}, {5, -7})[1], -7);  // a zero norm: factor 1
    EXPECT_EQ(pair(dtype, {5, -7}, {0, 0})[0], 5);
  }
}

TEST_P(Adasum, FormulaInLongDouble) {
  for (const DType dtype : kFloats) {
    for (const size_t count : {1u, 7u, 8u, 17u, 511u, 512u, 513u, 3001u}) {
      const Vector a = random_vector(dtype, count, count);
      const Vector b = random_vector(dtype, count, count + 1);
      long double dot = 0, aa = 0, bb = 0;
      for (size_t i = 0; i < count; ++i) {
        dot += static_cast<long double>(a[i]) * b[i];
        aa += static_cast<long double>(a[i]) * a[i];
        bb += static_cast<long double>(b[i]) * b[i];
      }
      Vector target(dtype, count);
      adasum_pair_on(GetParam(), dtype, a.data(), b.data(), target.data(), count);
      for (size_t i = 0; i < count; ++i) {
        const long double x = (1 - dot / (2 * aa)) * a[i], y = (1 - dot / (2 * bb)) * b[i];
        // Bounds the result's own rounding and the f64 roundings before it: of products, of their
        // sum, and in the dots.
        const long double bound =
            rounding_error(dtype) * std::abs(x + y) * 1.001L +
            (8 + static_cast<long double>(count)) * 0x1p-53L * (1 + std::abs(x) + std::abs(y)) +
            0x1p-25L * (dtype == DType::kF16);
        EXPECT_LE(std::abs(target[i] - (x + y)), bound)
            << dtype_name(dtype) << " count " << count << " element " << i;
      }
    }
  }
}

// Recomputes the documented order: lanes i % 8, then the upper half of the lanes added to the lower
// half.
TEST_P(Adasum, SumsInTheDocumentedOrder) {
  const size_t count = 1234;
  const Vector a = random_vector(DType::kF64, count, 1);
  const Vector b = random_vector(DType::kF64, count, 2);
  double lanes[8] = {};
  for (size_t i = 0; i < count; ++i) lanes[i % 8] += a[i] * b[i];
  double sums[3 * kAdasumLanes];
  GetParam().dots(DType::kF64, a.data(), b.data(), count, sums);
  for (size_t lane = 0; lane < 8; ++lane) EXPECT_EQ(sums[lane], lanes[lane]) << lane;
}

TEST_P(Adasum, EqualsScalarBitForBitAlsoInPlace) {
  for (const DType dtype : kFloats) {
    for (size_t count = 0; count <= 1100; count += count < 70 ? 1 : 103) {
      Vector a = random_vector(dtype, count, 3), b = random_vector(dtype, count, 4);
      Vector want(dtype, count), got(dtype, count);
      adasum_pair_on(reduce_targets().back(), dtype, a.data(), b.data(), want.data(), count);
      adasum_pair_on(GetParam(), dtype, a.data(), b.data(), got.data(), count);
      EXPECT_EQ(got.bytes(), want.bytes()) << dtype_name(dtype) << " count " << count;
      Vector first = a, second = b;
      adasum_pair_on(GetParam(), dtype, first.data(), b.data(), first.data(), count);
      adasum_pair_on(GetParam(), dtype, a.data(), second.data(), second.data(), count);
      EXPECT_EQ(first.bytes(), want.bytes()) << dtype_name(dtype) << " count " << count;
      EXPECT_EQ(second.bytes(), want.bytes()) << dtype_name(dtype) << " count " << count;
    }
  }
}

// Tests every half value on both sides, also infinite and NaN, with factors that overflow, round
// and cancel.
TEST_P(Adasum, BlendEqualsScalarForEveryHalf) {
  std::vector<uint16_t> all(0x10000);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const std::byte* const source = std::as_bytes(std::span(all)).data();
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const double factor : {0.5, -1.0, 1.0 / 3, 1e30, std::nan("1")}) {
      Bytes got(2 * all.size()), want(2 * all.size());
      GetParam().blend(dtype, source, factor, source, 1, got.data(), all.size());
      adasum_blend_scalar(dtype, source, factor, source, 1, want.data(), all.size());
      EXPECT_EQ(got, want) << dtype_name(dtype) << " factor " << factor;
    }
  }
}

TEST_P(Adasum, NanAndInfReachEveryElement) {
  for (const DType dtype : kFloats) {
    for (const double poison : {std::nan(""), HUGE_VAL}) {
      const Vector result = pair(dtype, {1, poison, 3}, {1, 2, 3});
      for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(result[i])) << dtype_name(dtype);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Reduce, Adasum,
                         ::testing::ValuesIn(reduce_targets().begin(), reduce_targets().end()),
                         [](const auto& row) { return std::string(row.param.name); });

// ---- the tree ---------------------------------------------------------------------------------

// Combines in rounds of neighbours: (0, 1), (2, 3), ...; an odd one stays unchanged.
Vector by_rounds(DType dtype, std::vector<Vector> vectors, size_t count) {
  while (vectors.size() > 1) {
    std::vector<Vector> next;
    for (size_t i = 0; i + 1 < vectors.size(); i += 2) {
      next.emplace_back(dtype, count);
      adasum_pair(dtype, vectors[i].data(), vectors[i + 1].data(), next.back().data(), count);
    }
    if (vectors.size() % 2 == 1) next.push_back(vectors.back());
    vectors = std::move(next);
  }
  return vectors[0];
}

// Writes to one of the sources, or to a separate vector when `at` is their number. The other
// sources must not change.
void expect_tree(DType dtype, const std::vector<Vector>& vectors, size_t count, size_t at) {
  std::vector<Vector> work = vectors;
  work.emplace_back(dtype, count);
  std::vector<const std::byte*> sources;
  for (size_t s = 0; s < vectors.size(); ++s) sources.push_back(work[s].data());
  Bytes scratch(adasum_scratch_bytes(dtype, vectors.size(), count));
  adasum(dtype, sources, work[at].data(), count, scratch);
  EXPECT_EQ(work[at].bytes(), by_rounds(dtype, vectors, count).bytes());
  for (size_t s = 0; s < vectors.size(); ++s) {
    if (s != at) {
      EXPECT_EQ(work[s].bytes(), vectors[s].bytes()) << "source " << s;
    }
  }
}

TEST(AdasumTree, EqualsRoundsOfNeighboursIntoAnyTarget) {
  const size_t count = 77;
  for (const DType dtype : kFloats) {
    for (size_t n = 1; n <= 17; ++n) {
      std::vector<Vector> vectors;
      for (size_t s = 0; s < n; ++s) vectors.push_back(random_vector(dtype, count, s));
      for (size_t at = 0; at <= n; ++at) {
        SCOPED_TRACE(std::string(dtype_name(dtype)) + " of " + std::to_string(n));
        expect_tree(dtype, vectors, count, at);
      }
    }
  }
}

TEST(AdasumTree, ScratchIsOneVectorPerLevel) {
  const size_t vectors[] = {0, 0, 0, 1, 2, 2, 2, 2, 3, 3};
  for (size_t n = 1; n < std::size(vectors); ++n)
    EXPECT_EQ(adasum_scratch_bytes(DType::kF32, n, 100), vectors[n] * 400) << n;
}

}  // namespace
}  // namespace gradbus
