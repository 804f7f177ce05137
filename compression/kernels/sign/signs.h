// Packs the signs of a gradient block into a bitmap, computes the sums for its levels, and decodes.
// Any thread.
//
// A block is x[i] = gradient[i] + decay * kept[i], as in compensate.h. It is never stored: the
// second pass computes it again, from the cache. So a block that is not finite leaves everything
// unchanged.
//
// The bitmap consists of u64 words, little-endian and unaligned: bit i % 64 of word i / 64 is set
// where x[i] < 0; bits past the end are clear. -0 and NaN are not below 0.
//
// Sums are in the lanes of lanes.h. In each word a lane adds its four elements in f32, by pairs,
// and adds the result to its sum in f64.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace gradbus {

struct SignBlock {
  const float* gradient = nullptr;  // null: zeros
  const float* kept = nullptr;      // null: x = gradient
  float decay = 1;
  size_t count = 0;
};

struct SignSums {
  double below = 0;  // sum of the elements below 0
  double rest = 0;   // sum of the others
  uint64_t negatives = 0;

  // False when an element is NaN or Inf, or so large that 16 of them overflow f32.
  bool finite() const { return std::isfinite(below) && std::isfinite(rest); }
};

// The values of a set bit and a clear bit.
struct SignLevels {
  float below = 0;
  float rest = 0;
};

constexpr size_t sign_words(size_t count) { return (count + 63) / 64; }

// Writes sign_words(count) words.
SignSums pack_signs(const SignBlock& block, std::byte* words);

// kept[i] = x[i] - its level. `kept` may be that of the block. Prefetches the elements behind the
// block, because they are next.
void keep_rest(const SignBlock& block, SignLevels levels, float* kept);

// sum[i] += level of bit i; values[i] = level of bit i.
void add_signs(const std::byte* words, size_t count, SignLevels levels, float* sum);
void put_signs(const std::byte* words, size_t count, SignLevels levels, float* values);

// The scalar definitions.
SignSums pack_signs_scalar(const SignBlock& block, std::byte* words);
void keep_rest_scalar(const SignBlock& block, SignLevels levels, float* kept);
void add_signs_scalar(const std::byte* words, size_t count, SignLevels levels, float* sum);
void put_signs_scalar(const std::byte* words, size_t count, SignLevels levels, float* values);

}  // namespace gradbus
