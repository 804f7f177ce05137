// Random numbers of the hostile programs. One thread; a program seeds random_ once.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>

inline std::mt19937_64 random_;

// 0 to bound - 1.
inline uint64_t below(uint64_t bound) { return random_() % bound; }

template <typename T>
T one_of(std::initializer_list<T> values) {
  return values.begin()[below(values.size())];
}
