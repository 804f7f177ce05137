// What `gradbus bench` can time: one row per collective, with what nccl-tests' PERFORMANCE.md says
// about its sizes and its bus bandwidth. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "gradbus/gradbus.h"

namespace gradbus {

// The share of `size` that each rank's link has to carry at least: busbw = algbw * factor.
enum class BusFactor : uint8_t {
  kWhole,       // 1: every byte crosses the busiest link once
  kOthers,      // (n - 1) / n: one's own block stays where it is
  kOthersTwice  // 2 (n - 1) / n: reduce-scatter, then all-gather
};

struct BenchCollective {
  std::string_view name;
  int number;      // gradbus_collective; 0: barrier
  bool reduces;    // takes --op
  bool rooted;     // takes --root
  bool in_blocks;  // `size` is a block of `count` elements per rank; else `count` elements
  bool registers;  // registered tensors, in place; --private: plain buffers
  BusFactor factor;
};

constexpr int kBarrier = 0;

// F100 with the known names when there is none.
Result<const BenchCollective*> find_collective(const std::string& name);
std::vector<std::string> collective_names();

double bus_factor(const BenchCollective& collective, int ranks);

// What is exchanged for a size that the user asked for, rounded down to whole elements of whole
// blocks as nccl-tests does.
struct Extent {
  uint64_t count = 0;  // elements of a block, or of all: the column
  uint64_t total = 0;  // elements of all blocks
  uint64_t bytes = 0;  // of `total`: the column size
};
Extent extent_of(const BenchCollective& collective, uint64_t bytes, uint64_t element_bytes,
                 int ranks);

}  // namespace gradbus
