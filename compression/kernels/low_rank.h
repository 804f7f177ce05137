// Products of a tall matrix M with a few vectors, a tile at a time: four rows by up to 128 columns,
// which stay in the first-level cache with the vectors' part. Any thread.
//
// The vectors q and p are stored one after the other: q[k * stride + column], and of the tile's
// four rows p[k * 4 + row]. All sums are in f32 and in one order, whatever the processor.
#pragma once

#include <cstddef>

namespace gradbus {

inline constexpr size_t kTileRows = 4;
// Gradient, residual, result, v and product of a tile take 10 KiB; with 512, all of L1, encoding
// and decoding took 1.2 times as long (AMD EPYC).
inline constexpr size_t kTileColumns = 128;

struct MatrixTile {
  const float* rows[kTileRows] = {};
  size_t width = 0;  // a multiple of 16 (lanes.h): zeros behind the matrix
};

// P = M Q: lanes[(k * 4 + row) * 16 + l] += rows[row][j] * q[k][j] for j = l, l + 16, ... in order.
void add_row_products(const MatrixTile& tile, const float* q, size_t stride, size_t rank,
                      float* lanes);

// Q = M^T P: q[k][j] += p[k][row] * rows[row][j] for row = 0, 1, 2, 3 in order.
void add_column_products(const MatrixTile& tile, const float* p, float* q, size_t stride,
                         size_t rank);

// P Q^T: product[row * 128 + j] = sum over k in order of p[k][row] * q[k][j].
void multiply_out(const float* p, const float* q, size_t stride, size_t rank, size_t width,
                  float* product);

// y[i] -= factor * x[i]
void subtract_scaled(float factor, const float* x, size_t count, float* y);

// residual[i] = v[i] - sent[i] where that is finite; else it stays.
void keep_lacking(const float* v, const float* sent, size_t count, float* residual);

// to[i] = factor * from[i]
void put_scaled(float factor, const float* from, size_t count, float* to);

// The definitions.
void add_row_products_scalar(const MatrixTile& tile, const float* q, size_t stride, size_t rank,
                             float* lanes);
void add_column_products_scalar(const MatrixTile& tile, const float* p, float* q, size_t stride,
                                size_t rank);
void multiply_out_scalar(const float* p, const float* q, size_t stride, size_t rank, size_t width,
                         float* product);
void subtract_scaled_scalar(float factor, const float* x, size_t count, float* y);
void keep_lacking_scalar(const float* v, const float* sent, size_t count, float* residual);
void put_scaled_scalar(float factor, const float* from, size_t count, float* to);

}  // namespace gradbus
