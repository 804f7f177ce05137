#include "server/scheduling/cut_search.h"

#include <algorithm>
#include <map>

namespace gradbus::scheduling {
namespace {

constexpr int kDisappointmentsMax = 3;
// A search of at most CutSearch::groups_max groups of 1,024 tensors prices 15,000 cuts. With
// hundreds of groups, which a rank may ask for, it would take hours and gigabytes.
constexpr size_t kPricedMax = 20'000;

class Search {
 public:
  Search(uint32_t tensors, const CutSearch& search, const CutCost& cost)
      : tensors_(tensors), search_(search), cost_(cost) {}

  Cuts run() {
    const uint32_t groups = std::min(search_.groups, tensors_);
    if (groups > search_.groups_max) return refined(equal_groups(groups));
    Cuts cuts;
    Cuts best;
    int disappointments = 0;
    while (groups > 0 ? cuts.size() + 1 < groups : may_add(cuts, disappointments)) {
      cuts = with_one_more_group(cuts);
      const bool gains = cost_of(cuts) < cost_of(best) * (1 - search_.gain_min);
      disappointments = gains ? 0 : disappointments + 1;
      if (groups > 0 || cost_of(cuts) < cost_of(best)) best = cuts;
    }
    return best;
  }

 private:
  bool may_add(const Cuts& cuts, int disappointments) const {
    return disappointments < kDisappointmentsMax &&
           cuts.size() + 1 < std::min(tensors_, search_.groups_max);
  }

  double cost_of(const Cuts& cuts) {
    const auto [known, is_new] = costs_.try_emplace(cuts, 0);
    if (is_new) known->second = cost_(cuts);
    return known->second;
  }

  uint32_t grid_step() const { return std::max(1u, tensors_ / std::max(1u, search_.grid)); }

  // From the best cuts so far, and from equal groups: two starts miss fewer optima than one.
  Cuts with_one_more_group(const Cuts& cuts) {
    Cuts best = refined(with_one_more(cuts));
    keep_better(&best, refined(equal_groups(static_cast<uint32_t>(cuts.size()) + 2)));
    return best;
  }

  Cuts equal_groups(uint32_t groups) const {
    Cuts cuts;
    for (uint64_t i = 1; i < groups; ++i)
      cuts.push_back(static_cast<uint32_t>(i * tensors_ / groups));
    return cuts;
  }

  // A free position exists, because there are fewer groups than tensors.
  Cuts with_one_more(const Cuts& cuts) {
    Cuts best;
    for (uint32_t step = grid_step(); best.empty(); step = std::max(1u, step / 2))
      for (uint32_t position = step; position < tensors_; position += step)
        keep_better(&best, with(cuts, position));
    return best;
  }

  // Each cut moves by `step` while that helps; then the step is halved.
  Cuts refined(Cuts cuts) {
    for (uint32_t step = grid_step(); step > 0; step /= 2)
      while (costs_.size() < kPricedMax && move_one(&cuts, step)) {
      }
    return cuts;
  }

  bool move_one(Cuts* cuts, uint32_t step) {
    Cuts best = *cuts;
    for (size_t i = 0; i < cuts->size(); ++i) {
      const uint32_t position = (*cuts)[i];
      Cuts others = *cuts;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      if (position > step) keep_better(&best, with(others, position - step));
      if (position + step < tensors_) keep_better(&best, with(others, position + step));
    }
    const bool moved = best != *cuts;
    *cuts = std::move(best);
    return moved;
  }

  // Empty when there is a cut already.
  static Cuts with(Cuts cuts, uint32_t position) {
    const auto place = std::lower_bound(cuts.begin(), cuts.end(), position);
    if (place != cuts.end() && *place == position) return {};
    cuts.insert(place, position);
    return cuts;
  }

  void keep_better(Cuts* best, const Cuts& cuts) {
    if (cuts.empty()) return;
    if (best->empty() || cost_of(cuts) < cost_of(*best)) *best = cuts;
  }

  const uint32_t tensors_;
  const CutSearch& search_;
  const CutCost& cost_;
  std::map<Cuts, double> costs_;
};

}  // namespace

Cuts search_cuts(uint32_t tensors, const CutSearch& search, const CutCost& cost) {
  return Search(tensors, search, cost).run();
}

}  // namespace gradbus::scheduling
