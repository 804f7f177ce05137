#include "compression/kernels/vector/low_rank.h"

#include <gmock/gmock.h>

#include <array>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "compression/kernels/vector/lanes.h"
#include "compression/kernels/vector/sums.h"
#include "tests/unit/compression/each_target.h"

namespace gradbus {
namespace {

using Floats = std::vector<float>;

constexpr size_t kStride = 528;
constexpr size_t kWidths[] = {16, 32, 48, kTileColumns - 16, kTileColumns};
constexpr size_t kCounts[] = {0, 1, 7, 15, 16, 17, 127, 128, 129, 1000};

Floats numbers(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats values(count);
  for (float& value : values) value = normal(random);
  return values;
}

void expect_same_bits(const Floats& got, const Floats& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_EQ(std::memcmp(&got[i], &want[i], 4), 0) << "at " << i;
}

// Four rows at odd offsets.
class Tile {
 public:
  explicit Tile(size_t width) : storage_(numbers(4 * kStride, 1)) {
    tile_.width = width;
    for (size_t row = 0; row < kTileRows; ++row) tile_.rows[row] = &storage_[row * kStride + row];
  }
  const MatrixTile& operator*() const { return tile_; }

 private:
  Floats storage_;
  MatrixTile tile_;
};

// ---- the definitions

// Rows {1, 2} and zeros, q = {3, 5}, {-1, 4}: 1 * 3 and 2 * 5 are in two lanes.
TEST(LowRankScalar, RowProductsByHand) {
  const Floats zeros(16);
  Floats row(16);
  row[0] = 1;
  row[1] = 2;
  Floats q(32);
  q[0] = 3;
  q[1] = 5;
  q[16] = -1;
  q[17] = 4;
  Floats lanes(2 * kTileRows * kSumLanes);
  add_row_products_scalar({{zeros.data(), row.data(), zeros.data(), zeros.data()}, 16}, q.data(),
                          16, 2, lanes.data());
  EXPECT_EQ(tree_sum(&lanes[kSumLanes]), 13);
  EXPECT_EQ(tree_sum(&lanes[(kTileRows + 1) * kSumLanes]), 7);
  EXPECT_EQ(tree_sum(&lanes[0]), 0);
}

// q[0] = 10 + 2 * 1 + 3 * 4; q[1] = 20 + 2 * 5 + 3 * 7.
TEST(LowRankScalar, ColumnProductsByHand) {
  const Floats zeros(16);
  Floats first(16);
  Floats second(16);
  first[0] = 1;
  first[1] = 5;
  second[0] = 4;
  second[1] = 7;
  Floats q(16);
  q[0] = 10;
  q[1] = 20;
  const float p[] = {2, 3, 100, 100};
  add_column_products_scalar({{first.data(), second.data(), zeros.data(), zeros.data()}, 16}, p,
                             q.data(), 16, 1);
  EXPECT_EQ(q[0], 24);
  EXPECT_EQ(q[1], 51);
}

// Row 1 of P is {2, 3}, column 0 of Q^T is {5, 7}: 10 + 21.
TEST(LowRankScalar, MultipliesOutByHand) {
  const float p[] = {0, 2, 0, 0, 0, 3, 0, 0};
  Floats q(32);
  q[0] = 5;
  q[16] = 7;
  Floats product(kTileRows * kTileColumns);
  multiply_out_scalar(p, q.data(), 16, 2, 16, product.data());
  EXPECT_EQ(product[kTileColumns], 31);
  EXPECT_EQ(product[0], 0);
}

TEST(LowRankScalar, KeepsWhatIsFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  const float v[] = {5, inf, 1, inf};
  const float sent[] = {2, inf, -inf, 1};
  float residual[] = {9, 8, 7, 6};
  keep_lacking_scalar(v, sent, 4, residual);
  EXPECT_THAT(residual, testing::ElementsAre(3, 8, 7, 6));
}

// 3 + 4 * 2 + 1 and 3 + 4 + 1; f64 holds what f32 would lose.
TEST(SumsScalar, ByHand) {
  const float a[] = {3, -4, 0x1p-30F};
  const float b[] = {1, -2, 0x1p-30F};
  EXPECT_EQ(dot_product_scalar(a, b, 3), 11 + 0x1p-60);
  EXPECT_EQ(sum_magnitudes_scalar(a, 3), 7 + 0x1p-30);
  const float kept[] = {-4, 2};
  const float gradient[] = {1, -3};
  EXPECT_EQ(sum_magnitudes_scalar(gradient, kept, 0.5F, 2), 3);  // |1 - 2| + |-3 + 1|
  EXPECT_EQ(sum_magnitudes_scalar(nullptr, kept, 0.5F, 2), 3);   // 2 + 1
}

// ---- every target does the same

TEST(LowRank, RowProductsAreAlikeOnEveryTarget) {
  const Floats q = numbers(5 * kStride, 2);
  on_each_target([&] {
    for (const size_t width : kWidths) {
      for (const size_t rank : {1, 2, 5}) {
        const Tile tile(width);
        Floats got = numbers(rank * kTileRows * kSumLanes, 3);
        Floats want = got;
        add_row_products(*tile, q.data(), kStride, rank, got.data());
        add_row_products_scalar(*tile, q.data(), kStride, rank, want.data());
        expect_same_bits(got, want);
      }
    }
  });
}

TEST(LowRank, ColumnProductsAreAlikeOnEveryTarget) {
  const Floats p = numbers(5 * kTileRows, 2);
  on_each_target([&] {
    for (const size_t width : kWidths) {
      for (const size_t rank : {1, 2, 5}) {
        const Tile tile(width);
        Floats got = numbers(rank * kStride, 3);
        Floats want = got;
        add_column_products(*tile, p.data(), got.data(), kStride, rank);
        add_column_products_scalar(*tile, p.data(), want.data(), kStride, rank);
        expect_same_bits(got, want);
      }
    }
  });
}

TEST(LowRank, MultipliesOutAlikeOnEveryTarget) {
  const Floats p = numbers(5 * kTileRows, 2);
  const Floats q = numbers(5 * kStride, 3);
  on_each_target([&] {
    for (const size_t width : kWidths) {
      for (const size_t rank : {1, 2, 5}) {
        Floats got(kTileRows * kTileColumns, 1);
        Floats want = got;
        multiply_out(p.data(), q.data(), kStride, rank, width, got.data());
        multiply_out_scalar(p.data(), q.data(), kStride, rank, width, want.data());
        expect_same_bits(got, want);
      }
    }
  });
}

TEST(LowRank, SubtractsAndKeepsAlikeOnEveryTarget) {
  on_each_target([] {
    for (const size_t count : kCounts) {
      Floats x = numbers(count + 1, 1);
      if (count > 20) x[9] = x[count] = std::numeric_limits<float>::infinity();
      Floats got = numbers(count + 1, 2);
      Floats want = got;
      keep_lacking(&x[1], &got[1], count, &got[1]);
      keep_lacking_scalar(&x[1], &want[1], count, &want[1]);
      expect_same_bits(got, want);
      subtract_scaled(0.3F, &x[1], count, &got[1]);
      subtract_scaled_scalar(0.3F, &x[1], count, &want[1]);
      expect_same_bits(got, want);
      put_scaled(0.7F, &x[1], count, &got[1]);
      put_scaled_scalar(0.7F, &x[1], count, &want[1]);
      expect_same_bits(got, want);
    }
  });
}

TEST(Sums, AreAlikeOnEveryTarget) {
  on_each_target([] {
    for (const size_t count : kCounts) {
      const Floats a = numbers(count + 1, 1);
      const Floats b = numbers(count + 3, 2);
      EXPECT_EQ(sum_magnitudes(&a[1], count), sum_magnitudes_scalar(&a[1], count));
      for (const float* gradient : {static_cast<const float*>(nullptr), &b[1]})
        EXPECT_EQ(sum_magnitudes(gradient, &a[1], 0.7F, count),
                  sum_magnitudes_scalar(gradient, &a[1], 0.7F, count));
      EXPECT_EQ(dot_product(&a[1], &b[3], count), dot_product_scalar(&a[1], &b[3], count));
    }
  });
}

}  // namespace
}  // namespace gradbus
