// Sends the blocks with the largest norms, as dense vectors that an all-reduce can add (Sun et al.
// 2019, "Optimizing network performance for distributed DNN training", section 3: coarse-grained
// sparse communication). It takes two rounds of all-reduce. Blocks have `block` elements; the last
// one is padded with zeros:
//   round 0   f32[blocks]             the L1 norm of each block of v; NaN where one is not finite
//   round 1   f32|f16[k][block]       v of the k blocks with the largest summed norms, by index;
//                                     k = ratio * blocks, to the nearest, at least 1. Ties go to
//                                     the lower index
// All agents see the same sums, so they choose the same blocks. The residual is v minus what was
// sent. A NaN norm counts as larger than all others, so the NaN is sent; then residuals do not
// change.
#pragma once

#include <array>
#include <vector>

#include "compression/codec.h"
#include "compression/kernels/vector/compensate.h"

namespace gradbus {

class BlockTopK final : public LinearCodec {
 public:
  BlockTopK(size_t count, size_t block, double ratio, DType values);

  uint32_t rounds() const override { return 2; }
  DType dtype(uint32_t round) const override { return round == 0 ? DType::kF32 : values_; }
  size_t vector_elements(uint32_t round) const override;

  // For a device (cuda/cuda_linear.h): elements per block, the chosen blocks of the last exchange
  // in ascending order, and whether its norms were finite.
  size_t block() const { return block_; }
  std::span<const uint32_t> chosen() const { return {order_.data(), sent_blocks_}; }
  bool finite() const { return finite_; }
  // The first part of project() in round 1: chooses blocks from the summed norms of all blocks.
  void choose(std::span<const float> norms);

  void project(uint32_t round, const EncodeInput& input, uint64_t shared_seed,
               std::span<const std::byte> sum_before, std::span<std::byte> vector) override;
  void finish(const EncodeInput& input, uint64_t shared_seed, uint32_t agents,
              std::span<const std::byte> sum, float scale, std::span<float> values) override;
  void clear_sent(std::span<float> values) const override;

 private:
  float norm(const EncodeInput& input, size_t block);
  void write_block(const EncodeInput& input, size_t block, std::byte* to);
  void finish_sent(const EncodeInput& input, size_t block, const std::byte* sum, float scale,
                   std::span<float> values);
  void finish_kept(const EncodeInput& input, size_t block, std::span<float> values);
  template <typename Work>
  void for_each_piece(size_t block, Work work);
  size_t block_end(size_t block) const;
  std::byte* place(std::byte* vector, size_t i) const;  // address of element i

  const size_t count_;
  const size_t block_;
  const size_t blocks_;
  const size_t sent_blocks_;
  const DType values_;
  bool finite_ = true;           // whether the summed norms of this exchange are finite
  std::vector<uint32_t> order_;  // all blocks; the chosen ones first, by index
  std::array<float, kBlockElements> scratch_;
  std::array<std::byte, kBlockElements * sizeof(float)> sent_;
};

}  // namespace gradbus
