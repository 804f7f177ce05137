// The signs of a block of gradient as a bitmap, the sums that its levels are made of, and back to
// values. Any thread.
//
// A block is x[i] = gradient[i] + decay * kept[i], as in compensate.h. It is never stored: the
// second pass works it out again, from the cache, so that a block which turns out not to be finite
// has left everything as it was.
//
// The bitmap is of u64 words, little-endian and unaligned: bit i % 64 of word i / 64 is set where
// x[i] < 0; bits past the end are clear. -0 and NaN are not below 0.
//
// Sums are in the lanes of lanes.h: of each word a lane adds its four elements in f32, by pairs,
// and the result to its sum in f64.
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
  double below = 0;  // of the elements below 0
  double rest = 0;   // of the others
  uint64_t negatives = 0;

  // False when an element is a NaN or Inf, or so large that 16 of them overflow f32.
  bool finite() const { return std::isfinite(below) && std::isfinite(rest); }
};

// What a set bit and a clear bit stand for.
struct SignLevels {
  float below = 0;
  float rest = 0;
};

constexpr size_t sign_words(size_t count) { return (count + 63) / 64; }

// Writes sign_words(count) words.
SignSums pack_signs(const SignBlock& block, std::byte* words);

// kept[i] = x[i] - its level; `kept` may be the block's own. Meanwhile what lies behind the block
// is called into the cache, as the next one.
void keep_rest(const SignBlock& block, SignLevels levels, float* kept);

// sum[i] += level of bit i; values[i] = level of bit i.
void add_signs(const std::byte* words, size_t count, SignLevels levels, float* sum);
void put_signs(const std::byte* words, size_t count, SignLevels levels, float* values);

// The definition of the above, one element at a time.
SignSums pack_signs_scalar(const SignBlock& block, std::byte* words);
void keep_rest_scalar(const SignBlock& block, SignLevels levels, float* kept);
void add_signs_scalar(const std::byte* words, size_t count, SignLevels levels, float* sum);
void put_signs_scalar(const std::byte* words, size_t count, SignLevels levels, float* values);

}  // namespace gradbus
