// randk sends max(1, floor(count * ratio)) elements drawn at random, where every set of that size
// is equally likely (Stich, Cordonnier, Jaggi 2018; MergeComp). Multiplied by count / k, the
// decoded vector is unbiased. With error feedback that would diverge, so the elements are sent
// unscaled.
//
// As payloads, each sender draws its own elements (sparse_payload.h, entries exactly that many). In
// an all-reduce, all agents draw alike from the shared seed, so no indices are sent. Any all-reduce
// can add the k values: one round, f32, in order of the indices.
#pragma once

#include <memory>
#include <vector>

#include "common/large_vector.h"
#include "compression/codecs/sparse_payload.h"
#include "compression/kernels/select/select.h"
#include "compression/registry.h"

namespace gradbus {

enum class RandKScale : uint8_t { kAuto, kYes, kNo };

struct RandKOptions {
  double ratio = 0.01;
  // Whether values are multiplied by count / k; auto: only without a residual.
  RandKScale scale = RandKScale::kAuto;
};

size_t randk_entries(const RandKOptions& options, size_t count);
float randk_factor(const RandKOptions& options, size_t count, bool has_residual);

// Draws k of `count` indices in ascending order, from a bitmap of the partition: O(k + count / 64).
// They are listed range after range from the start. Each range is a multiple of 64, except the
// last. A pass over the partition lists one range per block.
class IndexDraw {
 public:
  IndexDraw(size_t count_max, size_t k_max)
      : marks_((count_max + 63) / 64), indices_(k_max + kIndexSlack) {}
  void draw(uint64_t seed, size_t count, size_t k);
  // The drawn indices of the range.
  std::span<const uint32_t> list(size_t first, size_t count);
  // All indices listed so far.
  std::span<const uint32_t> listed() const { return {indices_.data(), listed_}; }

 private:
  LargeVector<uint64_t> marks_;
  std::vector<uint32_t> indices_;
  size_t listed_ = 0;
};

class RandK : public SelectingCodec {
 public:
  RandK(const RandKOptions& options, WireType type, size_t count_max);

  const RandKOptions& options() const { return options_; }

 private:
  size_t entries_min(size_t count) const override { return entries_max(count); }
  size_t entries_max(size_t count) const override { return randk_entries(options_, count); }
  Selection select(const EncodeInput& input) override;

  const RandKOptions options_;
  IndexDraw draw_;
  std::vector<float> values_;
};

class LinearRandK : public LinearCodec {
 public:
  LinearRandK(const RandKOptions& options, size_t count);

  const RandKOptions& options() const { return options_; }
  uint32_t rounds() const override { return 1; }
  DType dtype(uint32_t) const override { return DType::kF32; }
  size_t vector_elements(uint32_t) const override { return randk_entries(options_, count_); }
  void project(uint32_t round, const EncodeInput& input, uint64_t shared_seed,
               std::span<const std::byte> sum_before, std::span<std::byte> vector) override;
  void finish(const EncodeInput& input, uint64_t shared_seed, uint32_t agents,
              std::span<const std::byte> sum, float scale, std::span<float> values) override;
  void clear_sent(std::span<float> values) const override;

 private:
  const RandKOptions options_;
  const size_t count_;
  IndexDraw draw_;
  std::span<const uint32_t> sent_;  // by this agent in this exchange
};

std::unique_ptr<Codec> make_randk(const CodecOptions& options, const CodecShape& shape);
std::unique_ptr<LinearCodec> make_linear_randk(const CodecOptions& options,
                                               const CodecShape& shape);

}  // namespace gradbus
