#include "cli/launch/rank_layout.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "common/check.h"
#include "common/errors.h"
#include "common/units.h"
#include "proto/numbers.h"

namespace gradbus {
namespace {

Status too_few_slots(int ranks, int slots) {
  return error("H200",
               counted(ranks, "rank") + (ranks == 1 ? " does" : " do") + " not fit into " +
                   counted(slots, "slot"),
               "give the hosts more slots (-H NAME:SLOTS), or fewer ranks");
}

Status block_too_large(int ranks) {
  return error("H200",
               std::to_string(ranks) + " ranks for one agent; it serves at most " +
                   std::to_string(kLocalRanksMax) + " of one job",
               "use more agents (--agents N) or more hosts");
}

}  // namespace

Result<std::vector<RankPlace>> lay_out_ranks(int ranks, std::span<const int> slots) {
  const int total = std::accumulate(slots.begin(), slots.end(), 0);
  if (ranks > total) return too_few_slots(ranks, total);
  std::vector<RankPlace> places;
  for (size_t block = 0; block < slots.size(); ++block) {
    const int left = ranks - static_cast<int>(places.size());
    const int here = std::min(left, slots[block]);
    if (here > static_cast<int>(kLocalRanksMax)) return block_too_large(here);
    for (int local = 0; local < here; ++local)
      places.push_back({static_cast<int>(places.size()), static_cast<int>(block), local});
  }
  return places;
}

std::vector<int> even_blocks(int ranks, int agents) {
  GRADBUS_CHECK(agents >= 1 && agents <= ranks);
  std::vector<int> blocks(agents, ranks / agents);
  for (int i = 0; i < ranks % agents; ++i) ++blocks[i];
  return blocks;
}

}  // namespace gradbus
