// Kernels of powersgd (compression/kernels/vector/low_rank_scalar.cc), whose sums have one order
// each: along a row 16 lanes and a tree, along a column one row after the other.
#pragma once

#include "compression/cuda/cuda_linear.h"
#include "compression/cuda/kernels/elements.h"
#include "compression/cuda/kernels/grid.h"
#include "compression/kernels/vector/lanes.h"

namespace gradbus {

GRADBUS_BOTH inline float matrix_element(const CudaLowRank& input, uint32_t row, uint32_t column) {
  const uint64_t i = uint64_t{row} * input.columns + column;
  return i < input.partition.count ? plain_element(input.partition, static_cast<uint32_t>(i))
                                   : 0.0F;
}

// Sixteen rows a block, sixteen threads a row; one vector after the other.
struct RowProductsWork {
  static constexpr uint32_t kRows = kBlockThreads / kSumLanes;
  struct Shared {
    float lanes[kRows][kSumLanes];
  };
  CudaLowRank input;

  GRADBUS_BOTH uint32_t blocks() const { return larger(1u, parts_of(input.rows, kRows)); }
  GRADBUS_BOTH uint32_t phases() const { return larger(1u, 2 * input.rank); }
  GRADBUS_BOTH void run(uint32_t phase, uint32_t block, uint32_t thread, Shared& shared) const {
    const uint32_t k = phase / 2;
    const uint32_t lane = thread % kSumLanes;
    const uint32_t row = block * kRows + thread / kSumLanes;
    if (row >= input.rows || k >= input.rank) return;
    if (phase % 2 == 0) {
      const float* q = input.q + size_t{k} * input.columns;
      float sum = 0;
      for (uint32_t j = lane; j < input.columns; j += kSumLanes)
        sum += matrix_element(input, row, j) * q[j];
      shared.lanes[thread / kSumLanes][lane] = sum;
    } else if (lane == 0) {
      input.out[size_t{k} * input.rows + row] = tree_sum(shared.lanes[thread / kSumLanes]);
    }
  }
};

// A thread a column.
struct ColumnProductsWork {
  using Shared = NoShared;
  CudaLowRank input;

  GRADBUS_BOTH uint32_t blocks() const {
    return larger(1u, parts_of(input.columns, kBlockThreads));
  }
  GRADBUS_BOTH static uint32_t phases() { return 1; }
  GRADBUS_BOTH void run(uint32_t, uint32_t block, uint32_t thread, NoShared&) const {
    const uint32_t column = block * kBlockThreads + thread;
    if (column >= input.columns) return;
    for (uint32_t k = 0; k < input.rank; ++k) {
      const float* p = input.p + size_t{k} * input.rows;
      float sum = 0;
      for (uint32_t row = 0; row < input.rows; ++row)
        sum += p[row] * matrix_element(input, row, column);
      input.out[size_t{k} * input.columns + column] = sum;
    }
  }
};

struct RankFinishWork {
  using Shared = NoShared;
  CudaLowRank input;

  GRADBUS_BOTH uint32_t blocks() const { return piece_blocks(input.partition.count); }
  GRADBUS_BOTH static uint32_t phases() { return 1; }
  GRADBUS_BOTH void run(uint32_t, uint32_t block, uint32_t thread, NoShared&) const {
    for_elements(input.partition.count, block, thread, [&](uint32_t i) {
      const uint32_t row = i / input.columns;
      const uint32_t column = i % input.columns;
      float sent = 0;
      for (uint32_t k = 0; k < input.rank; ++k)
        sent += input.p[size_t{k} * input.rows + row] * input.q[size_t{k} * input.columns + column];
      if (input.partition.residual != nullptr) {
        const float lacking = plain_element(input.partition, i) - sent;
        if (is_finite(lacking)) input.partition.residual[i] = lacking;
      }
      input.out[i] = input.factor * sent;
    });
  }
};

template <class Start>
void start_low_rank(const CudaLowRank& input, const Start& start) {
  switch (input.part) {
    case CudaRankPart::kRows: return start(RowProductsWork{input});
    case CudaRankPart::kColumns: return start(ColumnProductsWork{input});
    case CudaRankPart::kFinish: return start(RankFinishWork{input});
  }
}

}  // namespace gradbus
