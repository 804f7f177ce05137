#include <array>
#include <bit>
#include <cstring>

#include "compression/kernels/sign/signs.h"
#include "compression/kernels/vector/lanes.h"

namespace gradbus {
namespace {

// Sums of the elements below 0, or of the others. `near` sums up to four words, `far` all earlier
// ones.
struct Lanes {
  std::array<float, kSumLanes> near{};
  std::array<double, kSumLanes> far{};
};

float element(const SignBlock& block, size_t i) {
  if (block.kept == nullptr) return block.gradient[i];
  const float fresh = block.gradient == nullptr ? 0.0F : block.gradient[i];
  return fresh + block.decay * block.kept[i];
}

// One word's elements, zeros past the end.
std::array<float, 64> word_elements(const SignBlock& block, size_t first) {
  std::array<float, 64> x{};
  for (size_t i = 0; i < 64 && first + i < block.count; ++i) x[i] = element(block, first + i);
  return x;
}

uint64_t word_of(const std::array<float, 64>& x) {
  uint64_t word = 0;
  for (size_t i = 0; i < 64; ++i) word |= static_cast<uint64_t>(x[i] < 0) << i;
  return word;
}

void add_word(const std::array<float, 64>& x, bool below, Lanes& lanes) {
  const auto part = [&](size_t i) { return (x[i] < 0) == below ? x[i] : 0.0F; };
  for (size_t l = 0; l < kSumLanes; ++l)
    lanes.near[l] += (part(l) + part(l + 16)) + (part(l + 32) + part(l + 48));
}

void flush(Lanes& lanes) {
  for (size_t l = 0; l < kSumLanes; ++l) lanes.far[l] += static_cast<double>(lanes.near[l]);
  lanes.near = {};
}

float level_at(const std::byte* words, size_t i, SignLevels levels) {
  const auto bits = std::to_integer<uint32_t>(words[i / 8]);
  return (bits >> (i % 8) & 1) != 0 ? levels.below : levels.rest;
}

}  // namespace

SignSums pack_signs_scalar(const SignBlock& block, std::byte* words) {
  SignSums sums;
  Lanes below{};
  Lanes rest{};
  for (size_t first = 0; first < block.count; first += 64) {
    const std::array<float, 64> x = word_elements(block, first);
    const uint64_t word = word_of(x);
    std::memcpy(words + first / 8, &word, sizeof(word));
    sums.negatives += static_cast<uint64_t>(std::popcount(word));
    add_word(x, true, below);
    add_word(x, false, rest);
    if (first % 256 != 192) continue;
    flush(below);
    flush(rest);
  }
  flush(below);
  flush(rest);
  sums.below = tree_sum(below.far.data());
  sums.rest = tree_sum(rest.far.data());
  return sums;
}

void keep_rest_scalar(const SignBlock& block, SignLevels levels, float* kept) {
  for (size_t i = 0; i < block.count; ++i) {
    const float x = element(block, i);
    kept[i] = x - (x < 0 ? levels.below : levels.rest);
  }
}

void add_signs_scalar(const std::byte* words, size_t count, SignLevels levels, float* sum) {
  for (size_t i = 0; i < count; ++i) sum[i] += level_at(words, i, levels);
}

void put_signs_scalar(const std::byte* words, size_t count, SignLevels levels, float* values) {
  for (size_t i = 0; i < count; ++i) values[i] = level_at(words, i, levels);
}

}  // namespace gradbus
