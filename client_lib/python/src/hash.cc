#include "hash.h"

#include <array>
#include <bit>
#include <cstring>

namespace gradbus::python {
namespace {

// Odd, so that a product keeps every bit of its factor; taken from pi.
constexpr uint64_t kFactor = 0x243f6a8885a308d3;
constexpr uint64_t kSecondFactor = 0x13198a2e03707345;
constexpr size_t kLanes = 4;

uint64_t mix(uint64_t state, uint64_t word) {
  return std::rotl((state ^ word) * kFactor, 29) * kSecondFactor;
}

uint64_t word_at(const std::byte* from, size_t bytes = sizeof(uint64_t)) {
  uint64_t word = 0;
  std::memcpy(&word, from, bytes);
  return word;
}

}  // namespace

uint64_t hash_bytes(std::span<const std::byte> bytes) {
  std::array<uint64_t, kLanes> lanes = {1, 2, 3, 4};
  const std::byte* at = bytes.data();
  const std::byte* const end = at + bytes.size();
  for (; static_cast<size_t>(end - at) >= kLanes * sizeof(uint64_t);
       at += kLanes * sizeof(uint64_t)) {
    for (size_t i = 0; i < kLanes; ++i) {
      lanes[i] = mix(lanes[i], word_at(at + i * sizeof(uint64_t)));
    }
  }
  uint64_t hash = bytes.size();
  for (const uint64_t lane : lanes) hash = mix(hash, lane);
  for (; static_cast<size_t>(end - at) >= sizeof(uint64_t); at += sizeof(uint64_t)) {
    hash = mix(hash, word_at(at));
  }
  if (at != end) hash = mix(hash, word_at(at, static_cast<size_t>(end - at)));
  return hash ^ (hash >> 32);
}

}  // namespace gradbus::python
