#include <cmath>

#include "compression/kernels/vector/lanes.h"
#include "compression/kernels/vector/low_rank.h"

namespace gradbus {

void add_row_products_scalar(const MatrixTile& tile, const float* q, size_t stride, size_t rank,
                             float* lanes) {
  for (size_t k = 0; k < rank; ++k)
    for (size_t row = 0; row < kTileRows; ++row)
      for (size_t j = 0; j < tile.width; ++j)
        lanes[(k * kTileRows + row) * kSumLanes + j % kSumLanes] +=
            tile.rows[row][j] * q[k * stride + j];
}

void add_column_products_scalar(const MatrixTile& tile, const float* p, float* q, size_t stride,
                                size_t rank) {
  for (size_t k = 0; k < rank; ++k)
    for (size_t row = 0; row < kTileRows; ++row)
      for (size_t j = 0; j < tile.width; ++j)
        q[k * stride + j] += p[k * kTileRows + row] * tile.rows[row][j];
}

void multiply_out_scalar(const float* p, const float* q, size_t stride, size_t rank, size_t width,
                         float* product) {
  for (size_t row = 0; row < kTileRows; ++row) {
    for (size_t j = 0; j < width; ++j) {
      float sum = 0;
      for (size_t k = 0; k < rank; ++k) sum += p[k * kTileRows + row] * q[k * stride + j];
      product[row * kTileColumns + j] = sum;
    }
  }
}

void subtract_scaled_scalar(float factor, const float* x, size_t count, float* y) {
  for (size_t i = 0; i < count; ++i) y[i] -= factor * x[i];
}

void keep_lacking_scalar(const float* v, const float* sent, size_t count, float* residual) {
  for (size_t i = 0; i < count; ++i) {
    const float lacking = v[i] - sent[i];
    if (std::isfinite(lacking)) residual[i] = lacking;
  }
}

void put_scaled_scalar(float factor, const float* from, size_t count, float* to) {
  for (size_t i = 0; i < count; ++i) to[i] = factor * from[i];
}

}  // namespace gradbus
