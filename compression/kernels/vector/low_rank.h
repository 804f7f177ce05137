// Products of a tall matrix M with a few vectors, one tile at a time. A tile has four rows and up
// to 128 columns. It stays in the first-level cache with its part of the vectors. Any thread.
//
// The vectors q and p are stored one after the other: q[k * stride + column], and for the four rows
// of the tile p[k * 4 + row]. All sums are f32 in one order on every processor.
#pragma once

#include <cstddef>

namespace gradbus {

inline constexpr size_t kTileRows = 4;
// Gradient, residual, result, v and product of a tile take 10 KiB. With 512 columns they take all
// of L1, and encoding and decoding took 1.2 times as long (AMD EPYC).
inline constexpr size_t kTileColumns = 128;

struct MatrixTile {
  const float* rows[kTileRows] = {};
  size_t width = 0;  // a multiple of 16 (lanes.h): padded with zeros
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

// residual[i] = v[i] - sent[i] if that is finite; else it does not change.
void keep_lacking(const float* v, const float* sent, size_t count, float* residual);

// to[i] = factor * from[i]
void put_scaled(float factor, const float* from, size_t count, float* to);

// The scalar definitions.
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
