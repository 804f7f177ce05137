// One line of `gradbus bench`: what was measured for a size, as text and as JSON. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/work.h"

namespace gradbus {

// Microseconds of one operation, from all iterations of a size.
struct BenchTimes {
  double best = 0;
  double p50 = 0;
  double p99 = 0;
};
// Not empty. p50 and p99 are samples, the nearest to those places of the sorted list.
BenchTimes times_of(std::vector<double> microseconds);

struct BenchRow {
  Extent extent;
  BenchTimes times;
  int batch = 1;     // operations of an iteration
  double algbw = 0;  // GB/s, of the best time
  double busbw = 0;
  std::optional<uint64_t> wrong;              // elements; empty: not checked
  std::optional<double> cpu_s_per_gb;         // empty: there were no bytes
  std::optional<double> shards_cpu_s_per_gb;  // or no shards
  // Of elements on GPUs, in GB/s, what is read and what is written: by a copy; and, where all ranks
  // are on one node, by the sum of all their vectors into all of them.
  std::optional<double> copy_gbs;
  std::optional<double> memory_gbs;
};

// `cpu_seconds` of all processes in `operations` operations of this extent.
BenchRow make_row(const BenchWork& work, const Extent& extent, const BenchTimes& times);
std::optional<double> cpu_s_per_gb(double cpu_seconds, uint64_t operations, uint64_t bytes);

// The comment lines above the columns.
std::string column_titles();
std::string row_text(const BenchWork& work, const BenchRow& row);
// "": there is nothing to say of GPUs.
std::string device_text(const BenchRow& row);
nlohmann::ordered_json row_json(const BenchWork& work, const BenchRow& row);

}  // namespace gradbus
