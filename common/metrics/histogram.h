// A histogram that its owner fills on the data path and any thread reads. Plain counters without
// locks: a reader may see a sample in a bucket before it is in the sum, and never waits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/metrics/tally.h"

namespace gradbus {

// Upper bounds in units of the observed value; values above the last one are in one more bucket.
template <size_t kBounds>
using Bounds = std::array<uint64_t, kBounds>;

// Nanoseconds, from 10 us to 10 s.
inline constexpr Bounds<13> kDurationBounds = {
    10'000,     30'000,      100'000,     300'000,       1'000'000,     3'000'000,     10'000'000,
    30'000'000, 100'000'000, 300'000'000, 1'000'000'000, 3'000'000'000, 10'000'000'000};
inline constexpr Bounds<8> kStepBounds = {0, 1, 2, 4, 8, 16, 32, 64};
inline constexpr Bounds<8> kDepthBounds = {0, 1, 4, 16, 64, 256, 1024, 4096};  // of a queue
inline constexpr size_t kHistogramBucketsMax = kDurationBounds.size() + 1;

// What a reader saw of a histogram, or the sum of several.
struct HistogramSample {
  std::array<uint64_t, kHistogramBucketsMax> counts{};  // not cumulative; the last one is unbounded
  uint64_t sum = 0;
};

template <const auto& kBounds>
class Histogram {
 public:
  static constexpr size_t kBuckets = kBounds.size() + 1;
  static_assert(kBuckets <= kHistogramBucketsMax);

  // One thread only.
  void observe(uint64_t value) {
    size_t bucket = 0;
    while (bucket < kBounds.size() && value > kBounds[bucket]) ++bucket;
    counts_[bucket].add(1);
    sum_.add(value);
  }
  HistogramSample sample() const {
    HistogramSample seen;
    for (size_t i = 0; i < kBuckets; ++i) seen.counts[i] = counts_[i].value();
    seen.sum = sum_.value();
    return seen;
  }

 private:
  std::array<Tally, kBuckets> counts_;
  Tally sum_;
};

using DurationHistogram = Histogram<kDurationBounds>;
using StepHistogram = Histogram<kStepBounds>;
using DepthHistogram = Histogram<kDepthBounds>;

}  // namespace gradbus
