#include "compression/codecs/dgc.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/check.h"
#include "compression/codecs/compensated_partition.h"
#include "compression/random.h"

namespace gradbus {
namespace {

size_t ceil_of(double value) { return static_cast<size_t>(std::ceil(value)); }

// The minimum size of a sample: the part `sample` of the partition, but at least 2 / ratio
// elements.
size_t samples_wanted(size_t count, double ratio, double sample) {
  const size_t least = ceil_of(2 / ratio);
  const size_t part = ceil_of(static_cast<double>(count) * sample);
  return std::max(least, std::min(part, std::max<size_t>(65536, 16 * least)));
}

// A stride that gives too few samples is reduced by 8. The last one that was too long therefore
// gave more than 1 / 9 of the final number, which bounds the sample by 9 times the wanted size.
size_t samples_limit(size_t count, double ratio, double sample) {
  return std::min(count, 9 * samples_wanted(count, ratio, sample));
}

}  // namespace

DgcSizes dgc_sizes(size_t count, double ratio, double sample) {
  DgcSizes sizes{.k = std::min(count, ceil_of(static_cast<double>(count) * ratio))};
  if (count <= ceil_of(2 / ratio)) {
    sizes.samples = count;
  } else {
    const size_t wanted = samples_wanted(count, ratio, sample);
    sizes.stride = ((count + wanted - 1) / wanted + 31) / 32 * 32 + 1;
    while (count / sizes.stride < wanted) sizes.stride -= 8;
    sizes.samples = count / sizes.stride;
  }
  sizes.top = ceil_of(static_cast<double>(sizes.samples) * ratio);
  return sizes;
}

Dgc::Dgc(const DgcOptions& options, WireType type, size_t count_max)
    : SelectingCodec(CodecId::kDgc, type),
      options_(options),
      largest_(count_max, dgc_sizes(count_max, options.ratio.largest(), options.sample).k),
      samples_max_(samples_limit(count_max, options.ratio.ratio, options.sample)),
      sample_(new float[samples_max_]) {}

size_t Dgc::entries_max(size_t count) const {
  return count == 0 ? 0 : dgc_sizes(count, options_.ratio.largest(), options_.sample).k;
}

DgcSizes Dgc::sizes(size_t count, uint64_t round) const {
  return dgc_sizes(count, options_.ratio.ratio_in(round), options_.sample);
}

Selection Dgc::select(const EncodeInput& input) {
  const DgcSizes sizes = this->sizes(input.count(), input.round);
  GRADBUS_CHECK(sizes.samples <= samples_max_);
  const size_t start = random_u32(input.seed, 0) % sizes.stride;
  for (size_t i = 0; i < sizes.samples; ++i)
    sample_[i] = compensated_element(input, start + i * sizes.stride);
  const std::span<const float> sample(sample_.get(), sizes.samples);
  const uint32_t threshold = largest_.kth_key(sample, sizes.top);
  const uint32_t lowest = largest_.kth_key(sample, std::min(2 * sizes.top, sizes.samples));
  return largest_.about(input, sizes.k, std::bit_cast<float>(threshold), lowest, sends_exactly());
}

std::unique_ptr<Codec> make_dgc(const CodecOptions& options, const CodecShape& shape) {
  return std::make_unique<Dgc>(
      DgcOptions{.ratio = warm_up(options), .sample = options.number("sample")},
      wire_type(options.text("values")), shape.count_max);
}

}  // namespace gradbus
