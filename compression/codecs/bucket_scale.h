// The step of a bucket, out of what its elements are like: see bucket_quantizer.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compression/codecs/bucket_quantizer.h"

namespace gradbus {

// Grows run by run; no default values, because 64 of them would be set for each block.
struct BucketStatistics {
  uint32_t largest;  // bits of max |v|
  double squares;    // sum of v^2
  size_t count;
};

inline constexpr BucketStatistics kNoStatistics{0, 0, 0};

// Adds the elements of a run to the statistics of its buckets, those that `options` asks for.
void measure(const QuantizerOptions& options, std::span<const float> values,
             BucketStatistics* statistics);

BucketScale scale_of(const QuantizerOptions& options, const BucketStatistics& statistics);

}  // namespace gradbus
