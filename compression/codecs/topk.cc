#include "compression/codecs/topk.h"

#include <algorithm>
#include <cmath>

#include "compression/codecs/compensated_partition.h"
#include "compression/kernels/vector/compensate.h"

namespace gradbus {
namespace {

// The sample reads whole cache lines: 1 in 128 of the partition's lines, at most 4096. 65536
// elements take 0.2 ms to rank.
constexpr size_t kLine = 16;
constexpr size_t kSparsity = 128;
constexpr size_t kLinesMax = 4096;

size_t kept(double ratio, size_t count) {
  if (count == 0) return 0;
  return std::max<size_t>(1, static_cast<size_t>(static_cast<double>(count) * ratio));
}

// The rank in the sample that k elements of the partition reach almost surely. It is six standard
// deviations above the mean, because elements of a line are alike, plus 8 for means near 0.
size_t safe_rank(size_t k, size_t sample, size_t count) {
  const double mean =
      static_cast<double>(k) * static_cast<double>(sample) / static_cast<double>(count);
  return static_cast<size_t>(mean + 6 * std::sqrt(mean) + 8);
}

}  // namespace

TopK::TopK(const WarmUp& ratio, WireType type, size_t count_max)
    : SelectingCodec(CodecId::kTopK, type),
      ratio_(ratio),
      largest_(count_max, kept(ratio.largest(), count_max)),
      sample_(new float[kLine * std::min(kLinesMax, count_max / kLine / kSparsity)]) {}

size_t TopK::entries(size_t count, uint64_t round) const {
  return kept(ratio_.ratio_in(round), count);
}

size_t TopK::entries_min(size_t count) const { return kept(ratio_.ratio, count); }
size_t TopK::entries_max(size_t count) const { return kept(ratio_.largest(), count); }

void TopK::take_line(const EncodeInput& input, size_t first, float* to) const {
  if (!input.momentum.empty()) {
    for (size_t i = 0; i < kLine; ++i) to[i] = compensated_element(input, first + i);
    return;
  }
  const float* v = compensate(input, first, kLine, to);
  if (v != to) std::copy_n(v, kLine, to);
}

TopK::Guess TopK::guess(const EncodeInput& input, size_t k) {
  const size_t count = input.count();
  const size_t lines = std::min(kLinesMax, count / kLine / kSparsity);
  const size_t rank = lines == 0 ? 1 : safe_rank(k, lines * kLine, count);
  if (rank > lines * kLine) return {};
  const size_t stride = count / lines / kLine * kLine;
  for (size_t i = 0; i < lines; ++i) take_line(input, i * stride, &sample_[i * kLine]);
  const std::span<const float> sample(sample_.get(), lines * kLine);
  return {.safe = largest_.kth_key(sample, rank),
          .likely = largest_.kth_key(sample, std::max<size_t>(k * sample.size() / count, 1))};
}

Selection TopK::select(const EncodeInput& input) {
  const size_t k = entries(input.count(), input.round);
  const Guess guess = this->guess(input, k);
  return largest_.exactly(input, k, guess.safe, sends_exactly() ? guess.likely : kClearNone);
}

std::unique_ptr<Codec> make_topk(const CodecOptions& options, const CodecShape& shape) {
  return std::make_unique<TopK>(warm_up(options), wire_type(options.text("values")),
                                shape.count_max);
}

}  // namespace gradbus
