// randk: max(1, floor(count * ratio)) elements drawn at random, every set of so many equally likely
// (Stich, Cordonnier, Jaggi 2018; MergeComp). Times count / k the decoded vector is unbiased; with
// error feedback, where that would diverge, they are sent as they are.
//
// As payloads each sender draws its own (sparse_payload.h, entries exactly that many). In flight
// all draw alike from the shared seed, so no indices travel and the k values can be added by any
// all-reduce: one round, f32, in order of the indices.
#pragma once

#include <memory>
#include <vector>

#include "common/large_vector.h"
#include "compression/codecs/sparse_payload.h"
#include "compression/kernels/select.h"
#include "compression/registry.h"

namespace gradbus {

enum class RandKScale : uint8_t { kAuto, kYes, kNo };

struct RandKOptions {
  double ratio = 0.01;
  RandKScale scale = RandKScale::kAuto;  // times count / k; auto: unless there is a residual
};

size_t randk_entries(const RandKOptions& options, size_t count);
float randk_factor(const RandKOptions& options, size_t count, bool has_residual);

// Draws k of `count` indices, ascending, out of a bitmap of the unit: O(k + count / 64). They are
// listed range after range, from the first on, each a multiple of 64 but for the last: a pass over
// the unit does so for each block of it.
class IndexDraw {
 public:
  IndexDraw(size_t count_max, size_t k_max)
      : marks_((count_max + 63) / 64), indices_(k_max + kIndexSlack) {}
  void draw(uint64_t seed, size_t count, size_t k);
  // Those of the range.
  std::span<const uint32_t> list(size_t first, size_t count);
  // All so far.
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
  std::span<const uint32_t> sent_;  // of this agent in this exchange
};

std::unique_ptr<Codec> make_randk(const CodecOptions& options, const CodecShape& shape);
std::unique_ptr<LinearCodec> make_linear_randk(const CodecOptions& options,
                                               const CodecShape& shape);

}  // namespace gradbus
