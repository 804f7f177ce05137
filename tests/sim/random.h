// Random numbers that are equal with every standard library and free to seed, which the oracle does
// per rank and round: SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
// generators").
#pragma once

#include <cstdint>

namespace gradbus::sim {

class Random {
 public:
  using result_type = uint64_t;
  explicit Random(uint64_t seed) : state_(seed) {}

  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return ~uint64_t{0}; }
  uint64_t operator()() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t mixed = (state_ ^ (state_ >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
  }

 private:
  uint64_t state_;
};

// In [low, high]; as good as uniform for the small ranges used here.
inline uint64_t pick(Random& random, uint64_t low, uint64_t high) {
  return low + random() % (high - low + 1);
}

}  // namespace gradbus::sim
