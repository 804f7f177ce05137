#include "worker_agent/job/extents.h"

#include <algorithm>
#include <iterator>

namespace gradbus {

uint64_t Extents::bytes() const {
  uint64_t sum = 0;
  for (const auto& [begin, end] : extents_) sum += end - begin;
  return sum;
}

Extents::Extent Extents::insert(Extent added) {
  auto at = extents_.upper_bound(added.begin);
  if (at != extents_.begin() && std::prev(at)->second >= added.begin) --at;
  while (at != extents_.end() && at->first <= added.end) {
    added.begin = std::min(added.begin, at->first);
    added.end = std::max(added.end, at->second);
    at = extents_.erase(at);
  }
  if (added.bytes() > 0) extents_[added.begin] = added.end;
  return added;
}

void Extents::erase(Extent removed) {
  if (removed.bytes() == 0) return;
  auto at = extents_.upper_bound(removed.begin);
  if (at != extents_.begin() && std::prev(at)->second > removed.begin) --at;
  while (at != extents_.end() && at->first < removed.end) {
    const Extent old{at->first, at->second};
    at = extents_.erase(at);
    if (old.begin < removed.begin) extents_[old.begin] = removed.begin;
    if (old.end > removed.end) extents_[removed.end] = old.end;
  }
}

std::optional<Extents::Extent> Extents::best_fit(uint64_t bytes) const {
  std::optional<Extent> best;
  for (const auto& [begin, end] : extents_) {
    const Extent extent{begin, end};
    if (extent.bytes() < bytes || (best && best->bytes() <= extent.bytes())) continue;
    best = extent;
  }
  return best;
}

void Extents::each_in(Extent range, const std::function<void(Extent)>& visit) const {
  auto at = extents_.upper_bound(range.begin);
  if (at != extents_.begin()) --at;
  for (; at != extents_.end() && at->first < range.end; ++at) {
    const Extent common{std::max(at->first, range.begin), std::min(at->second, range.end)};
    if (common.begin < common.end) visit(common);
  }
}

}  // namespace gradbus
