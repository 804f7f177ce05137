#include "cli/bench/collectives.h"

#include <algorithm>
#include <iterator>

#include "common/errors.h"

namespace gradbus {
namespace {

constexpr BenchCollective kCollectives[] = {
    // name, number, reduces, rooted, in_blocks, registers, factor
    {"all_reduce", GRADBUS_ALLREDUCE, true, false, false, true, BusFactor::kOthersTwice},
    {"reduce_scatter", GRADBUS_REDUCESCATTER, true, false, true, true, BusFactor::kOthers},
    {"all_gather", GRADBUS_ALLGATHER, false, false, true, false, BusFactor::kOthers},
    {"broadcast", GRADBUS_BROADCAST, false, true, false, false, BusFactor::kWhole},
    {"reduce", GRADBUS_REDUCE, true, true, false, true, BusFactor::kWhole},
    {"gather", GRADBUS_GATHER, false, true, true, false, BusFactor::kOthers},
    {"scatter", GRADBUS_SCATTER, false, true, true, false, BusFactor::kOthers},
    {"all_to_all", GRADBUS_ALLTOALL, false, false, true, false, BusFactor::kOthers},
    {"barrier", kBarrier, false, false, false, false, BusFactor::kWhole},
};

}  // namespace

std::vector<std::string> collective_names() {
  std::vector<std::string> names;
  for (const BenchCollective& collective : kCollectives) names.emplace_back(collective.name);
  return names;
}

Result<const BenchCollective*> find_collective(const std::string& name) {
  const auto found =
      std::find_if(std::begin(kCollectives), std::end(kCollectives),
                   [&](const BenchCollective& collective) { return collective.name == name; });
  if (found != std::end(kCollectives)) return &*found;
  std::string known;
  for (const std::string& one : collective_names()) known += one + ", ";
  return error("F100", "gradbus bench: there is no collective \"" + name.substr(0, 40) + "\"",
               "take one of: " + known + "machine");
}

double bus_factor(const BenchCollective& collective, int ranks) {
  const double others = (ranks - 1.0) / ranks;
  switch (collective.factor) {
    case BusFactor::kWhole: return 1;
    case BusFactor::kOthers: return others;
    case BusFactor::kOthersTwice: return 2 * others;
  }
  return 1;
}

Extent extent_of(const BenchCollective& collective, uint64_t bytes, uint64_t element_bytes,
                 int ranks) {
  const uint64_t blocks = collective.in_blocks ? static_cast<uint64_t>(ranks) : 1;
  Extent extent;
  extent.count = bytes / element_bytes / blocks;
  extent.total = extent.count * blocks;
  extent.bytes = extent.total * element_bytes;
  return extent;
}

}  // namespace gradbus
