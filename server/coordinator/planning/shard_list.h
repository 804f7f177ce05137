// The shards of one job, in the order of JobStarted.shards: a shard's index never changes, also
// when the coordinator knows it by another id after a restart. Part of CoordinatorJob; pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "server/coordinator/members/membership.h"

namespace gradbus {

class ShardList {
 public:
  using Row = std::pair<uint64_t, AgentInfo>;  // id, info

  auto begin() { return rows_.begin(); }
  auto end() { return rows_.end(); }
  auto begin() const { return rows_.begin(); }
  auto end() const { return rows_.end(); }
  bool empty() const { return rows_.empty(); }
  size_t size() const { return rows_.size(); }

  auto find(uint64_t id) { return std::ranges::find(rows_, id, &Row::first); }
  bool contains(uint64_t id) const {
    return std::ranges::find(rows_, id, &Row::first) != rows_.end();
  }
  void add(uint64_t id, const AgentInfo& info) { rows_.emplace_back(id, info); }
  const AgentInfo& at(uint32_t index) const { return rows_.at(index).second; }

  // Those that are not lost, by index.
  AgentInfos living() const {
    AgentInfos infos;
    for (size_t index = 0; index < rows_.size(); ++index)
      if (!rows_[index].second.lost) infos.emplace(index, rows_[index].second);
    return infos;
  }

 private:
  std::vector<Row> rows_;
};

}  // namespace gradbus
