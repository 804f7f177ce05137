// Sends a matrix of low rank instead of the gradient (Vogels et al. 2019, algorithms 1 and 2).
//
// The partition is treated as a row-major matrix M, rows x columns. A vector is treated as the most
// square matrix possible, padded with zeros. It takes two rounds of all-reduce, f32:
//   round 0   P = M Q: `rows` elements for each of the r columns; then P is orthogonalised. The
//             result is the same on all agents, because the sums are (Gram-Schmidt; a rest below
//             1e-5 is 0)
//   round 1   Q = M^T P: `columns` elements for each of the r columns
// The sum over agents is P Q^T. Each agent has sent P (Q / agents)^T, and its residual is v minus
// that.
//
// r = min(rank, rows, columns). The next round starts with Q / agents (warm start). Columns of it
// that are 0, as all are at first, or not finite are drawn from the shared seed: uniform numbers in
// [-1, 1). Agents may start with different Q, because any P works if all have the same sum.
//
// A NaN or Inf in P makes all values NaN. Then, and where a value overflows, the residual does not
// change.
#pragma once

#include <array>
#include <vector>

#include "compression/codec.h"
#include "compression/kernels/vector/low_rank.h"
#include "compression/registry.h"

namespace gradbus {

class PowerSgd final : public LinearCodec {
 public:
  PowerSgd(size_t rank, const CodecShape& shape);

  uint32_t rounds() const override { return 2; }
  DType dtype(uint32_t) const override { return DType::kF32; }
  size_t vector_elements(uint32_t round) const override;

  // For the products of a device (cuda/cuda_linear.h): the shape of the partition's matrix, the
  // orthogonalised P, and Q with `stride` elements a column.
  size_t rows() const { return rows_; }
  size_t columns() const { return columns_; }
  size_t rank() const { return rank_; }
  size_t stride() const { return stride_; }
  std::span<const float> p() const { return p_; }
  std::span<const float> q() const { return q_; }
  // The parts of project() and finish() besides the products. The first runs before round 0. The
  // second runs with its sum and returns false if that is not finite. The third runs with the sum
  // of round 1.
  void renew_q(uint64_t shared_seed);
  bool take_p(std::span<const float> sum);
  void take_q(std::span<const float> sum, uint32_t agents);

  void project(uint32_t round, const EncodeInput& input, uint64_t shared_seed,
               std::span<const std::byte> sum_before, std::span<std::byte> vector) override;
  void finish(const EncodeInput& input, uint64_t shared_seed, uint32_t agents,
              std::span<const std::byte> sum, float scale, std::span<float> values) override;

 private:
  void multiply(const EncodeInput& input, float* product);             // P = M Q
  void multiply_transposed(const EncodeInput& input, float* product);  // Q = M^T P
  void orthogonalise_p();
  void settle(const EncodeInput& input, const MatrixTile& tile, size_t row, size_t column,
              float factor, std::span<float> values);

  // The number of elements of row `row` in a tile that starts at `column`. It is smaller where the
  // partition ends.
  size_t tile_elements(size_t row, size_t column) const;
  // Prefetches a row of a later tile. Four rows of two vectors are more streams than the hardware
  // prefetcher follows.
  void prefetch(const EncodeInput& input, size_t first) const;
  const float* load_row(const EncodeInput& input, size_t row, size_t column, size_t width,
                        float* scratch);
  template <typename Work>
  void for_each_tile(const EncodeInput& input, size_t row, Work work);
  const float* coefficients(size_t row);  // p of the tile's rows, 0 past the last row

  const size_t count_;
  const size_t columns_;
  const size_t rows_;
  const size_t rank_;
  const size_t stride_;        // of q_: columns_ rounded up to whole lanes, padded with zeros
  std::vector<float> q_;       // rank_ * stride_
  std::vector<float> p_;       // rank_ * rows_
  std::vector<float> lanes_;   // the sums of one tile
  std::vector<float> tile_p_;  // rank_ * kTileRows
  std::array<float, kTileRows * kTileColumns> tile_v_;
  std::array<float, kTileRows * kTileColumns> tile_sent_;
};

}  // namespace gradbus
