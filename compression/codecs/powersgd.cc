#include "compression/codecs/powersgd.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/check.h"
#include "compression/kernels/vector/compensate.h"
#include "compression/kernels/vector/lanes.h"
#include "compression/kernels/vector/sums.h"
#include "compression/random.h"

namespace gradbus {
namespace {

// Gram-Schmidt leaves a part of a column. If its share of the squared norm is below this, it is
// rounding noise: f32 represents P to about 1e-6.
constexpr double kNoise = 1e-10;

constexpr size_t kTilesAhead = 2;

size_t columns_of(const CodecShape& shape) {
  if (shape.columns != 0) return shape.columns;
  return static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(shape.count_max))));
}

size_t rows_of(const CodecShape& shape, size_t columns) {
  return columns == 0 ? 0 : (shape.count_max + columns - 1) / columns;
}

bool is_finite_sum(std::span<const float> values) {
  return first_not_finite(values.data(), values.size()) == values.size();
}

std::span<const float> floats(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

void normalise(double norm, size_t count, float* column) {
  for (size_t i = 0; i < count; ++i) column[i] = static_cast<float>(column[i] / norm);
}

}  // namespace

PowerSgd::PowerSgd(size_t rank, const CodecShape& shape)
    : count_(shape.count_max),
      columns_(columns_of(shape)),
      rows_(rows_of(shape, columns_)),
      rank_(std::min({rank, rows_, columns_})),
      stride_(whole_lanes(columns_)),
      q_(rank_ * stride_),
      p_(rank_ * rows_),
      lanes_(rank_ * kTileRows * kSumLanes),
      tile_p_(rank_ * kTileRows) {
  static_assert(kTileColumns <= kBlockElements && kTileColumns % kSumLanes == 0);
}

size_t PowerSgd::vector_elements(uint32_t round) const {
  return rank_ * (round == 0 ? rows_ : columns_);
}

// A column of zeros would stay zero, and a column that is not finite would stay so.
void PowerSgd::renew_q(uint64_t seed) {
  for (size_t k = 0; k < rank_; ++k) {
    float* column = q_.data() + k * stride_;
    const double squares = dot_product(column, column, columns_);
    if (squares > 0 && std::isfinite(squares)) continue;
    const uint64_t stream = mix_u64(seed + k);
    for (size_t j = 0; j < columns_; ++j)
      column[j] = 2 * random_partition(stream, static_cast<uint32_t>(j)) - 1;
  }
}

// ---- tiles

size_t PowerSgd::tile_elements(size_t row, size_t column) const {
  const size_t first = row * columns_ + column;
  const size_t end = std::min((row + 1) * columns_, count_);
  return first < end ? std::min(kTileColumns, end - first) : 0;
}

// Prefetches into the second-level cache, because rows at a power-of-two distance share sets of the
// first-level cache.
void PowerSgd::prefetch(const EncodeInput& input, size_t first) const {
  constexpr size_t kLine = 16;
  for (size_t i = first; i < std::min(first + kTileColumns, count_); i += kLine) {
    if (!input.gradient.empty()) __builtin_prefetch(&input.gradient[i], 0, 2);
    if (!input.residual.empty()) __builtin_prefetch(&input.residual[i], 0, 2);
  }
}

const float* PowerSgd::load_row(const EncodeInput& input, size_t row, size_t column, size_t width,
                                float* scratch) {
  const size_t count = tile_elements(row, column);
  const float* v = scratch;
  prefetch(input, row * columns_ + column + kTilesAhead * kTileColumns);
  if (count > 0) v = compensate(input, row * columns_ + column, count, scratch);
  if (count == width) return v;
  if (v != scratch) std::copy(v, v + count, scratch);
  std::fill(scratch + count, scratch + width, 0.0F);
  return scratch;
}

template <typename Work>
void PowerSgd::for_each_tile(const EncodeInput& input, size_t row, Work work) {
  for (size_t column = 0; column < columns_; column += kTileColumns) {
    MatrixTile tile;
    tile.width = whole_lanes(std::min(kTileColumns, columns_ - column));
    for (size_t i = 0; i < kTileRows; ++i)
      tile.rows[i] =
          load_row(input, row + i, column, tile.width, tile_v_.data() + i * kTileColumns);
    work(tile, column);
  }
}

const float* PowerSgd::coefficients(size_t row) {
  for (size_t k = 0; k < rank_; ++k)
    for (size_t i = 0; i < kTileRows; ++i)
      tile_p_[k * kTileRows + i] = row + i < rows_ ? p_[k * rows_ + row + i] : 0.0F;
  return tile_p_.data();
}

// ---- products

void PowerSgd::multiply(const EncodeInput& input, float* product) {
  for (size_t row = 0; row < rows_; row += kTileRows) {
    std::fill(lanes_.begin(), lanes_.end(), 0.0F);
    for_each_tile(input, row, [&](const MatrixTile& tile, size_t column) {
      add_row_products(tile, q_.data() + column, stride_, rank_, lanes_.data());
    });
    for (size_t k = 0; k < rank_; ++k)
      for (size_t i = 0; i < kTileRows && row + i < rows_; ++i)
        product[k * rows_ + row + i] = tree_sum(&lanes_[(k * kTileRows + i) * kSumLanes]);
  }
}

void PowerSgd::multiply_transposed(const EncodeInput& input, float* product) {
  std::fill(q_.begin(), q_.end(), 0.0F);
  for (size_t row = 0; row < rows_; row += kTileRows) {
    const float* p = coefficients(row);
    for_each_tile(input, row, [&](const MatrixTile& tile, size_t column) {
      add_column_products(tile, p, q_.data() + column, stride_, rank_);
    });
  }
  for (size_t k = 0; k < rank_; ++k)
    std::copy_n(q_.data() + k * stride_, columns_, product + k * columns_);
}

// Uses modified Gram-Schmidt.
void PowerSgd::orthogonalise_p() {
  for (size_t k = 0; k < rank_; ++k) {
    float* column = p_.data() + k * rows_;
    const double before = dot_product(column, column, rows_);
    for (size_t c = 0; c < k; ++c) {
      const float* other = p_.data() + c * rows_;
      const double along = dot_product(other, column, rows_);
      subtract_scaled(static_cast<float>(along), other, rows_, column);
    }
    const double left = dot_product(column, column, rows_);
    if (left > kNoise * before) {
      normalise(std::sqrt(left), rows_, column);
    } else {
      std::fill_n(column, rows_, 0.0F);
    }
  }
}

// ---- the exchange

void PowerSgd::project(uint32_t round, const EncodeInput& input, uint64_t shared_seed,
                       std::span<const std::byte> sum_before, std::span<std::byte> vector) {
  GRADBUS_CHECK(input.count() == count_ && vector.size() == vector_elements(round) * sizeof(float));
  auto* product = reinterpret_cast<float*>(vector.data());
  if (round == 0) {
    renew_q(shared_seed);
    return multiply(input, product);
  }
  if (!take_p(floats(sum_before))) {  // the same on all agents; finish() then makes all of Q NaN
    std::fill_n(product, vector_elements(1), std::numeric_limits<float>::quiet_NaN());
    return;
  }
  multiply_transposed(input, product);
}

bool PowerSgd::take_p(std::span<const float> sum) {
  GRADBUS_CHECK(sum.size() == p_.size());
  if (!is_finite_sum(sum)) return false;
  std::copy(sum.begin(), sum.end(), p_.begin());
  orthogonalise_p();
  return true;
}

void PowerSgd::take_q(std::span<const float> sum, uint32_t agents) {
  GRADBUS_CHECK(sum.size() == vector_elements(1));
  const auto count = static_cast<float>(agents);
  for (size_t k = 0; k < rank_; ++k)
    for (size_t j = 0; j < columns_; ++j) q_[k * stride_ + j] = sum[k * columns_ + j] / count;
}

void PowerSgd::settle(const EncodeInput& input, const MatrixTile& tile, size_t row, size_t column,
                      float factor, std::span<float> values) {
  for (size_t i = 0; i < kTileRows; ++i) {
    const size_t first = (row + i) * columns_ + column;
    const size_t count = tile_elements(row + i, column);
    const float* sent = tile_sent_.data() + i * kTileColumns;
    if (!input.residual.empty() && count > 0)
      keep_lacking(tile.rows[i], sent, count, input.residual.data() + first);
    if (count > 0) put_scaled(factor, sent, count, values.data() + first);
  }
}

void PowerSgd::finish(const EncodeInput& input, uint64_t, uint32_t agents,
                      std::span<const std::byte> sum, float scale, std::span<float> values) {
  GRADBUS_CHECK(values.size() == count_);
  take_q(floats(sum), agents);
  for (size_t row = 0; row < rows_; row += kTileRows) {
    const float* p = coefficients(row);
    for_each_tile(input, row, [&](const MatrixTile& tile, size_t column) {
      multiply_out(p, q_.data() + column, stride_, rank_, tile.width, tile_sent_.data());
      settle(input, tile, row, column, scale * static_cast<float>(agents), values);
    });
  }
}

}  // namespace gradbus
