// Random numbers from counters: element i of a stream gets random_u32(seed, i), for any caller and
// order. So scalar, SIMD and CUDA code draw the same numbers. Not for secrets.
//
// It applies the finalizer of MurmurHash3 (Austin Appleby, public domain) to counter and seed. That
// is a bijection of the counter, so a stream of 2^32 has no value twice. It costs two
// multiplications an element.
#pragma once

#include <cstdint>

namespace gradbus {

constexpr uint32_t mix_u32(uint32_t bits) {
  bits ^= bits >> 16;
  bits *= 0x85ebca6b;
  bits ^= bits >> 13;
  bits *= 0xc2b2ae35;
  return bits ^ (bits >> 16);
}

// The finalizer of splitmix64 (Steele, Lea, Flood 2014). It makes seeds of streams from counters.
constexpr uint64_t mix_u64(uint64_t bits) {
  bits += 0x9e3779b97f4a7c15;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

constexpr uint32_t random_u32(uint64_t seed, uint32_t index) {
  return mix_u32(
      (mix_u32(index ^ static_cast<uint32_t>(seed)) + static_cast<uint32_t>(seed >> 32)));
}

// Uniform in [0, 1): 24 bits, exact in f32.
constexpr float random_partition(uint64_t seed, uint32_t index) {
  return static_cast<float>(random_u32(seed, index) >> 8) * 0x1p-24F;
}

// floor(bits * count / 2^64): uniform to 2^-33 for any count.
constexpr uint64_t drawn_below(uint64_t bits, uint64_t count) {
  return ((bits >> 32) * count + ((bits & 0xffffffff) * count >> 32)) >> 32;
}

}  // namespace gradbus
