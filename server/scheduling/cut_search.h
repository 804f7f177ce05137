// MergeComp's search for cuts: where to cut a row of tensors into groups, given only what a cut
// costs.
//
// The cost may be measured on a running job, so it is asked for as rarely as possible, and nothing
// is assumed of its form. The paper's search has two groups and one cut. This one adds a cut at a
// time where it helps most, then moves each cut while that helps, in steps that are halved. Equal
// groups are a second start for each number of groups.
// Pure, if the cost is; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace gradbus::scheduling {

// Rising positions from 1 to tensors - 1; a cut at p separates tensors p - 1 and p.
using Cuts = std::vector<uint32_t>;
using CutCost = std::function<double(const Cuts&)>;

struct CutSearch {
  uint32_t groups = 0;       // exact number (at most one per tensor); 0: as many as help
  uint32_t groups_max = 24;  // when they are searched
  uint32_t grid = 24;        // positions that are tried for a new cut
  double gain_min = 0.0005;  // of the cost; three cuts in a row that gain less end the search
};

// The best cuts that were asked for. `tensors` is at least 1.
Cuts search_cuts(uint32_t tensors, const CutSearch& search, const CutCost& cost);

}  // namespace gradbus::scheduling
