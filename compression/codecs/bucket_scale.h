// The step of a bucket, computed from statistics of its elements: see bucket_quantizer.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compression/codecs/bucket_quantizer.h"

namespace gradbus {

struct BucketStatistics {
  uint32_t largest = 0;  // bits of max |v|, where asks_for_largest()
  double squares = 0;    // sum of v^2, where asks_for_squares()
  size_t count = 0;      // elements
};

bool asks_for_largest(const QuantizerOptions& options);
bool asks_for_squares(const QuantizerOptions& options);

BucketScale scale_of(const QuantizerOptions& options, const BucketStatistics& statistics);

}  // namespace gradbus
