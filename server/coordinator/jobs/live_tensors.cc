#include "server/coordinator/jobs/live_tensors.h"

#include <algorithm>
#include <utility>

namespace gradbus {

void LiveTensors::add(Tensor tensor) {
  on_shards_ += tensor.on_shards ? 1 : 0;
  live_.emplace(tensor.id, std::move(tensor));
}

bool LiveTensors::has_released(uint32_t rank, uint32_t id) const {
  return has(released_, id, rank) || has(viewed_, id, rank);
}

bool LiveTensors::has(const std::map<uint32_t, RankBits>& ranks, uint32_t id, uint32_t rank) {
  const auto at = ranks.find(id);
  return at != ranks.end() && at->second.contains(rank);
}

bool LiveTensors::release_but_views(uint32_t rank, uint32_t id) {
  if (!live_.contains(id) || has_released(rank, id)) return false;
  viewed_.try_emplace(id, gone_.size()).first->second.insert(rank);
  return true;
}

bool LiveTensors::release(uint32_t rank, uint32_t id, std::vector<Tensor>& retired) {
  if (!live_.contains(id) || has(released_, id, rank)) return false;
  const auto at = released_.try_emplace(id, gone_.size()).first;
  at->second.insert(rank);
  if (unused(at->second)) retire(id, retired);
  return true;
}

void LiveTensors::leave(uint32_t rank, std::vector<Tensor>& retired) {
  gone_.insert(rank);
  std::vector<uint32_t> ids;
  for (const auto& [id, released] : released_)
    if (unused(released)) ids.push_back(id);
  for (const uint32_t id : ids) retire(id, retired);
}

// The counts decide most calls: each of the ranks releases each tensor.
bool LiveTensors::unused(const RankBits& released) const {
  if (released.full()) return true;
  if (released.count() + gone_.count() < gone_.size()) return false;
  return std::ranges::all_of(released.list(false),
                             [this](uint32_t rank) { return gone_.contains(rank); });
}

void LiveTensors::retire(uint32_t id, std::vector<Tensor>& retired) {
  released_.erase(id);
  viewed_.erase(id);
  retired.push_back(std::move(live_.extract(id).mapped()));
  on_shards_ -= retired.back().on_shards ? 1 : 0;
}

}  // namespace gradbus
