// Which rank runs where: consecutive blocks of ranks, one block per agent. Pure.
#pragma once

#include <span>
#include <vector>

#include "common/status.h"

namespace gradbus {

struct RankPlace {
  int rank = 0;
  int block = 0;       // index of the agent (and of the host, when hosts are given)
  int local_rank = 0;  // index inside the block

  bool operator==(const RankPlace&) const = default;
};

// Ranks 0.. fill the first block's slots, then the second's, and so on; later blocks may stay
// empty. GB-H200 when `ranks` are more than all slots, or a block gets more than an agent serves.
Result<std::vector<RankPlace>> lay_out_ranks(int ranks, std::span<const int> slots);

// Slots of `agents` blocks that hold `ranks` together and differ by one at most, larger ones first.
// Requires 1 <= agents <= ranks.
std::vector<int> even_blocks(int ranks, int agents);

}  // namespace gradbus
