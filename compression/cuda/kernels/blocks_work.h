// Kernels of blocktopk (codecs/blocktopk.h).
#pragma once

#include "common/dtype.h"
#include "compression/cuda/cuda_linear.h"
#include "compression/cuda/kernels/elements.h"
#include "compression/cuda/kernels/grid.h"
#include "compression/kernels/vector/lanes.h"

namespace gradbus {

// Sixteen threads a block of the codec, whose pieces of 2048 are summed up in 16 lanes each.
struct BlockNormsWork {
  static constexpr uint32_t kBlocks = kBlockThreads / kSumLanes;
  struct Shared {
    double lanes[kBlocks][kSumLanes];
    double sum[kBlocks];
  };
  CudaBlocks input;

  GRADBUS_BOTH uint32_t norms() const { return parts_of(input.partition.count, input.block); }
  GRADBUS_BOTH uint32_t blocks() const { return larger(1u, parts_of(norms(), kBlocks)); }
  GRADBUS_BOTH uint32_t pieces() const { return parts_of(input.block, kPieceElements); }
  GRADBUS_BOTH uint32_t phases() const { return 2 * pieces() + 1; }
  GRADBUS_BOTH void run(uint32_t phase, uint32_t block, uint32_t thread, Shared& shared) const {
    const uint32_t own = thread / kSumLanes;
    const uint32_t lane = thread % kSumLanes;
    const uint32_t norm = block * kBlocks + own;
    if (norm >= norms()) return;
    if (phase == 2 * pieces()) {
      if (lane == 0) static_cast<float*>(input.out)[norm] = norm_of(shared.sum[own]);
    } else if (phase % 2 == 0) {
      shared.lanes[own][lane] = lane_sum(norm, phase / 2, lane);
    } else if (lane == 0) {
      const double piece = tree_sum(shared.lanes[own]);
      shared.sum[own] = phase == 1 ? 0.0 + piece : shared.sum[own] + piece;
    }
  }

 private:
  GRADBUS_BOTH double lane_sum(uint32_t norm, uint32_t piece, uint32_t lane) const {
    const uint64_t start = uint64_t{norm} * input.block;
    const uint64_t end = smaller<uint64_t>(start + input.block, input.partition.count);
    const uint64_t first = start + uint64_t{piece} * kPieceElements;
    const uint64_t stop = smaller(first + kPieceElements, end);
    double sum = 0;
    for (uint64_t i = first + lane; i < stop; i += kSumLanes)
      sum += fabs(static_cast<double>(plain_element(input.partition, static_cast<uint32_t>(i))));
    return sum;
  }
  // As norm_of_sum() there.
  GRADBUS_BOTH static float norm_of(double sum) {
    constexpr double kLargest = 0x1.fffffep127;
    if (!(sum - sum == 0)) return float_of(kQuietNan);
    return sum > kLargest ? float_of(0x7f800000) : static_cast<float>(sum);
  }
};

template <class Element>
struct BlockGatherWork {
  using Shared = NoShared;
  CudaBlocks input;

  GRADBUS_BOTH uint32_t elements() const { return input.chosen * input.block; }
  GRADBUS_BOTH uint32_t blocks() const { return piece_blocks(elements()); }
  GRADBUS_BOTH static uint32_t phases() { return 1; }
  GRADBUS_BOTH void run(uint32_t, uint32_t block, uint32_t thread, NoShared&) const {
    auto* to = static_cast<typename Element::Bits*>(input.out);
    for_elements(elements(), block, thread, [&](uint32_t e) {
      const uint64_t i = uint64_t{input.blocks[e / input.block]} * input.block + e % input.block;
      to[e] = i < input.partition.count
                  ? Element::narrow(plain_element(input.partition, static_cast<uint32_t>(i)))
                  : typename Element::Bits{0};
    });
  }
};

template <class Element>
struct BlockFinishWork {
  using Shared = NoShared;
  CudaBlocks input;

  GRADBUS_BOTH uint32_t blocks() const { return piece_blocks(input.partition.count); }
  GRADBUS_BOTH static uint32_t phases() { return 1; }
  GRADBUS_BOTH void run(uint32_t, uint32_t block, uint32_t thread, NoShared&) const {
    const auto* sums = static_cast<const typename Element::Bits*>(input.sum);
    for_elements(input.partition.count, block, thread, [&](uint32_t i) {
      const uint32_t place = input.places[i / input.block];
      const bool sent = place != 0 && place <= input.chosen;
      if (input.finite != 0 && input.partition.residual != nullptr) keep(i, sent);
      const uint64_t from = uint64_t{place - 1} * input.block + i % input.block;
      static_cast<float*>(input.out)[i] = sent ? Element::widen(sums[from]) * input.scale : 0.0F;
    });
  }

 private:
  GRADBUS_BOTH void keep(uint32_t i, bool sent) const {
    const float v = plain_element(input.partition, i);
    const float left = sent ? v - Element::widen(Element::narrow(v)) : v;
    if (!sent || is_finite(left)) input.partition.residual[i] = left;
  }
};

template <template <class> class Work, class Start>
void start_with_element(const CudaBlocks& input, const Start& start) {
  const auto dtype = static_cast<DType>(input.dtype);
  if (dtype == DType::kF16) return start(Work<CudaF16>{input});
  if (dtype == DType::kBF16) return start(Work<CudaBf16>{input});
  start(Work<CudaF32>{input});
}

template <class Start>
void start_blocks(const CudaBlocks& input, const Start& start) {
  switch (input.part) {
    case CudaBlocksPart::kNorms: return start(BlockNormsWork{input});
    case CudaBlocksPart::kGather: return start_with_element<BlockGatherWork>(input, start);
    case CudaBlocksPart::kFinish: return start_with_element<BlockFinishWork>(input, start);
  }
}

}  // namespace gradbus
