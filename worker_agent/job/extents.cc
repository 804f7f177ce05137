#include "worker_agent/job/extents.h"

#include <algorithm>
#include <iterator>

namespace gradbus {

void Extents::put(Extent extent) {
  if (extent.bytes() == 0) return;
  extents_[extent.begin] = extent.end;
  by_bytes_.insert({extent.bytes(), extent.begin});
  bytes_ += extent.bytes();
}

Extents::Place Extents::take_out(Place place) {
  const Extent extent{place->first, place->second};
  by_bytes_.erase({extent.bytes(), extent.begin});
  bytes_ -= extent.bytes();
  return extents_.erase(place);
}

Extents::Extent Extents::insert(Extent added) {
  auto at = extents_.upper_bound(added.begin);
  if (at != extents_.begin() && std::prev(at)->second >= added.begin) --at;
  while (at != extents_.end() && at->first <= added.end) {
    added.begin = std::min(added.begin, at->first);
    added.end = std::max(added.end, at->second);
    at = take_out(at);
  }
  put(added);
  return added;
}

void Extents::erase(Extent removed) {
  if (removed.bytes() == 0) return;
  auto at = extents_.upper_bound(removed.begin);
  if (at != extents_.begin() && std::prev(at)->second > removed.begin) --at;
  while (at != extents_.end() && at->first < removed.end) {
    const Extent old{at->first, at->second};
    at = take_out(at);
    if (old.begin < removed.begin) put({old.begin, removed.begin});
    if (old.end > removed.end) put({removed.end, old.end});
  }
}

std::optional<Extents::Extent> Extents::best_fit(uint64_t bytes) const {
  const auto found = by_bytes_.lower_bound({bytes, 0});
  if (found == by_bytes_.end()) return {};
  return Extent{found->second, found->second + found->first};
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
