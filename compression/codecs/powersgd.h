// A matrix of low rank instead of the gradient (Vogels et al. 2019, algorithms 1 and 2).
//
// The unit is seen as M, rows x columns, row-major; a vector, as the most square matrix there is,
// with zeros behind. Two rounds of all-reduce, f32:
//   round 0   P = M Q: of each of the r columns, `rows` elements; then P is orthogonalised, alike
//             on all agents since the sums are (Gram-Schmidt; what is left below 1e-5 is 0)
//   round 1   Q = M^T P: of each of the r columns, `columns` elements
// Their sum over agents is P Q^T, and each has sent P (Q / agents)^T: its residual is v minus that.
//
// r = min(rank, rows, columns). Q / agents is where the next round begins (warm start); columns of
// it that are 0, as all are at first, or not finite are drawn from the shared seed, uniform in
// [-1, 1). Agents may begin with different Q: any P will do as long as all have the same sum.
//
// A NaN or Inf in P makes all values NaN; then, and where a value overflows, the residual stays.
#pragma once

#include <array>
#include <vector>

#include "compression/codec.h"
#include "compression/kernels/low_rank.h"
#include "compression/registry.h"

namespace gradbus {

class PowerSgd final : public LinearCodec {
 public:
  PowerSgd(size_t rank, const CodecShape& shape);

  uint32_t rounds() const override { return 2; }
  DType dtype(uint32_t) const override { return DType::kF32; }
  size_t vector_elements(uint32_t round) const override;

  // What a device multiplies with (cuda/cuda_linear.h): the unit's matrix, P as it was
  // orthogonalised, Q with `stride` elements a column.
  size_t rows() const { return rows_; }
  size_t columns() const { return columns_; }
  size_t rank() const { return rank_; }
  size_t stride() const { return stride_; }
  std::span<const float> p() const { return p_; }
  std::span<const float> q() const { return q_; }
  // ... and what project() and finish() do beside multiplying: before round 0; with its sum, false
  // where that is not finite; with the sum of round 1.
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

  // The elements of row `row` from `column` on that a tile has, fewer where the unit ends.
  size_t tile_elements(size_t row, size_t column) const;
  // Asks memory for a row of a later tile: four rows of two vectors are more streams than the
  // processor follows by itself.
  void call_up(const EncodeInput& input, size_t first) const;
  const float* load_row(const EncodeInput& input, size_t row, size_t column, size_t width,
                        float* scratch);
  template <typename Work>
  void for_each_tile(const EncodeInput& input, size_t row, Work work);
  const float* coefficients(size_t row);  // p of a tile's rows, 0 past the last row

  const size_t count_;
  const size_t columns_;
  const size_t rows_;
  const size_t rank_;
  const size_t stride_;        // of q_: columns_ rounded up to whole lanes, zeros behind
  std::vector<float> q_;       // rank_ * stride_
  std::vector<float> p_;       // rank_ * rows_
  std::vector<float> lanes_;   // of one tile's sums
  std::vector<float> tile_p_;  // rank_ * kTileRows
  std::array<float, kTileRows * kTileColumns> tile_v_;
  std::array<float, kTileRows * kTileColumns> tile_sent_;
};

}  // namespace gradbus
