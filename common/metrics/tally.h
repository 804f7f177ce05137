// A counter that one thread increments and any thread reads: without locks or fences.
#pragma once

#include <atomic>
#include <cstdint>

namespace gradbus {

class Tally {
 public:
  void add(uint64_t more) { set(value() + more); }
  void set(uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

}  // namespace gradbus
