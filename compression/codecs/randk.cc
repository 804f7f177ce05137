#include "compression/codecs/randk.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "common/check.h"
#include "compression/codecs/compensated_partition.h"
#include "compression/kernels/select/collect.h"
#include "compression/kernels/vector/compensate.h"
#include "compression/random.h"
#include "hwy/cache_control.h"

namespace gradbus {
namespace {

// Draws until `k` marks are set. An index that is already marked is drawn again. Draws in batches,
// so that several lines of the bitmap, which is seldom in the cache, are fetched at the same time.
void mark_random(uint64_t seed, size_t count, size_t k, std::span<uint64_t> marks) {
  std::array<uint64_t, 64> batch;
  for (uint64_t counter = mix_u64(seed); k != 0;) {
    const size_t draws = std::min(k, batch.size());
    for (size_t i = 0; i < draws; ++i) {
      batch[i] = drawn_below(mix_u64(counter++), count);
      __builtin_prefetch(&marks[batch[i] / 64], 1);
    }
    for (size_t i = 0; i < draws; ++i) {
      uint64_t& word = marks[batch[i] / 64];
      k -= ~word >> (batch[i] % 64) & 1;
      word |= uint64_t{1} << (batch[i] % 64);
    }
  }
}

RandKOptions options_of(const CodecOptions& options) {
  const std::string& scale = options.text("scale");
  return {.ratio = options.number("ratio"),
          .scale = scale == "yes"  ? RandKScale::kYes
                   : scale == "no" ? RandKScale::kNo
                                   : RandKScale::kAuto};
}

// Prefetches the next values: as many as memory delivers while the indices of a block are listed.
void prefetch_values(std::span<const float> values, size_t first) {
  constexpr size_t kElements = 1024;
  for (size_t i = first; i < std::min(first + kElements, values.size()); i += 16)
    hwy::Prefetch(&values[i]);
}

// One pass over a partition. Writes factor * v of the drawn elements to `sent`, and v to the
// residual, minus the sent values if `settles`. A separate gather at the end took a fifth of the
// time for partitions larger than the cache. A separate update of the residual took 12 ns per
// element.
class TakeIn {
 public:
  TakeIn(const EncodeInput& input, IndexDraw& draw, float factor, bool settles, float* sent)
      : input_(input),
        draw_(draw),
        factor_(factor),
        settles_(settles && !input.residual.empty()),
        v_is_there_(input.gradient.empty() && input.decay == 1 && !input.residual.empty()),
        sent_(sent) {}

  // Returns kAllFinite, or the index of v's first NaN or Inf with the residual unchanged.
  size_t run() {
    if (const size_t bad = look_first(input_); bad != kAllFinite) return bad;
    for (size_t first = 0; first < input_.count(); first += kBlockElements) {
      const size_t count = std::min(kBlockElements, input_.count() - first);
      const size_t taken = leave_v(first, count);
      if (taken < count) return give_up(first + taken);
      prefetch_values(input_.gradient, first + count);
      take(first, count);
    }
    return kAllFinite;
  }

 private:
  // Writes v up to a word that is not finite and returns the number of elements. collect_block()
  // writes it without listing any element.
  size_t leave_v(size_t first, size_t count) const {
    if (v_is_there_ || input_.residual.empty())
      return first_not_finite(&compensated_values(input_)[first], count);
    CollectBlock block = collect_block_of(input_, first);
    block.of.count = count;
    block.few = true;
    return collect_block(block, {.from = kClearNone}, nullptr, nullptr).taken;
  }
  void take(size_t first, size_t count) {
    const float* const v = &compensated_values(input_)[first];
    const std::span<const uint32_t> indices = draw_.list(first, count);
    const float factor = factor_;
    float* const sent = sent_;
    for (size_t i = 0; i < indices.size(); ++i) sent[i] = factor * v[indices[i] - first];
    sent_ += indices.size();
    for (size_t i = 0; settles_ && i < indices.size(); ++i) {
      float& kept = input_.residual[indices[i]];
      kept = std::isfinite(sent[i]) ? kept - sent[i] : 0;
    }
  }
  // The element is in the word behind the first `taken` elements. Restores what was written before.
  // An element that overflowed was dropped, so it is not restored.
  size_t give_up(size_t taken) {
    const size_t bad = next_not_finite(input_, taken);
    const std::span<const uint32_t> listed = draw_.listed();
    const float* const sent = sent_ - listed.size();
    for (size_t i = 0; settles_ && i < listed.size(); ++i)
      if (std::isfinite(sent[i])) input_.residual[listed[i]] += sent[i];
    if (!input_.residual.empty() && !v_is_there_) restore_residual(input_, taken);
    return bad;
  }

  const EncodeInput& input_;
  IndexDraw& draw_;
  const float factor_;
  const bool settles_;
  const bool v_is_there_;
  float* sent_;
};

}  // namespace

size_t randk_entries(const RandKOptions& options, size_t count) {
  if (count == 0) return 0;
  return std::max<size_t>(1, static_cast<size_t>(static_cast<double>(count) * options.ratio));
}

float randk_factor(const RandKOptions& options, size_t count, bool has_residual) {
  const bool scaled =
      options.scale == RandKScale::kYes || (options.scale == RandKScale::kAuto && !has_residual);
  if (!scaled) return 1;
  return static_cast<float>(static_cast<double>(count) /
                            static_cast<double>(randk_entries(options, count)));
}

// If more than half of the indices are drawn, the omitted ones are drawn instead, so that few draws
// hit a mark. The marks are cleared in order just before, so most of them are in the cache.
void IndexDraw::draw(uint64_t seed, size_t count, size_t k) {
  const std::span<uint64_t> marks(marks_.data(), (count + 63) / 64);
  const bool marks_left_out = k > count / 2;
  std::fill(marks.begin(), marks.end(), 0);
  mark_random(seed, count, marks_left_out ? count - k : k, marks);
  if (marks_left_out) {
    for (uint64_t& word : marks) word = ~word;
    if (count % 64 != 0) marks.back() &= (uint64_t{1} << (count % 64)) - 1;
  }
  listed_ = 0;
}

std::span<const uint32_t> IndexDraw::list(size_t first, size_t count) {
  uint32_t* const to = indices_.data() + listed_;
  const uint64_t* const following = &marks_[first / 64] + count / 64;
  for (size_t i = 0; i < count / 64; i += 8) hwy::Prefetch(following + i);
  const size_t found = put_indices(&marks_[first / 64], count, static_cast<uint32_t>(first), to);
  listed_ += found;
  return {to, found};
}

// ---- payloads -----------------------------------------------------------------------------------

RandK::RandK(const RandKOptions& options, WireType type, size_t count_max)
    : SelectingCodec(CodecId::kRandK, type),
      options_(options),
      draw_(count_max, randk_entries(options, count_max)),
      values_(std::max<size_t>(1, randk_entries(options, count_max))) {}

Selection RandK::select(const EncodeInput& input) {
  const size_t k = entries_max(input.count());
  const float factor = randk_factor(options_, input.count(), !input.residual.empty());
  draw_.draw(input.seed, input.count(), k);
  TakeIn take(input, draw_, factor, sends_exactly(), values_.data());
  if (const size_t bad = take.run(); bad != kAllFinite) return {.not_finite = bad};
  return {.indices = draw_.listed(), .values = {values_.data(), k}, .cleared = sends_exactly()};
}

std::unique_ptr<Codec> make_randk(const CodecOptions& options, const CodecShape& shape) {
  return std::make_unique<RandK>(options_of(options), wire_type(options.text("values")),
                                 shape.count_max);
}

// ---- in flight ----------------------------------------------------------------------------------

LinearRandK::LinearRandK(const RandKOptions& options, size_t count)
    : options_(options), count_(count), draw_(count, randk_entries(options, count)) {}

void LinearRandK::project(uint32_t, const EncodeInput& input, uint64_t shared_seed,
                          std::span<const std::byte>, std::span<std::byte> vector) {
  const size_t k = randk_entries(options_, count_);
  GRADBUS_CHECK(input.count() == count_ && vector.size() == k * sizeof(float));
  const float factor = randk_factor(options_, count_, !input.residual.empty());
  draw_.draw(shared_seed, count_, k);
  sent_ = {};
  TakeIn take(input, draw_, factor, true, reinterpret_cast<float*>(vector.data()));
  if (const size_t bad = take.run(); bad != kAllFinite) {
    std::fill(vector.begin(), vector.end(), std::byte{0});
    const float value = compensated_element(input, bad);
    return store_field(vector.data(),
                       std::isfinite(value) ? std::numeric_limits<float>::quiet_NaN() : value);
  }
  sent_ = draw_.listed();
}

void LinearRandK::finish(const EncodeInput&, uint64_t shared_seed, uint32_t,
                         std::span<const std::byte> sum, float scale, std::span<float> values) {
  const size_t k = randk_entries(options_, count_);
  GRADBUS_CHECK(values.size() == count_ && sum.size() == k * sizeof(float));
  draw_.draw(shared_seed, count_, k);
  const std::span<const uint32_t> indices = draw_.list(0, count_);
  std::fill(values.begin(), values.end(), 0.0F);
  for (size_t i = 0; i < k; ++i)
    values[indices[i]] = scale * load_field<float>(&sum[i * sizeof(float)]);
}

void LinearRandK::clear_sent(std::span<float> values) const {
  for (const uint32_t index : sent_) values[index] = 0;
}

std::unique_ptr<LinearCodec> make_linear_randk(const CodecOptions& options,
                                               const CodecShape& shape) {
  return std::make_unique<LinearRandK>(options_of(options), shape.count_max);
}

}  // namespace gradbus
