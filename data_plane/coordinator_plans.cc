#include "data_plane/coordinator_plans.h"

#include <algorithm>

#include "common/errors.h"

namespace gradbus {

TensorSpec spec_from(const v1::TensorSpec& spec) {
  return {spec.name(),
          spec.count(),
          static_cast<DType>(spec.dtype()),
          static_cast<ReduceOp>(spec.op()),
          static_cast<CollectiveKind>(spec.collective()),
          spec.root(),
          spec.row_elements() == 0 ? 1 : spec.row_elements(),
          spec.prescale() == 0 ? 1 : spec.prescale(),
          spec.postscale() == 0 ? 1 : spec.postscale(),
          spec.compression(),
          spec.columns(),
          spec.mode(),
          spec.shape(),
          spec.priority(),
          spec.result_priority(),
          spec.budget_bytes()};
}

v1::TensorSpec spec_to(const TensorSpec& spec) {
  v1::TensorSpec message;
  message.set_name(spec.name);
  message.set_count(spec.count);
  message.set_dtype(static_cast<uint32_t>(spec.dtype));
  message.set_op(static_cast<uint32_t>(spec.op));
  message.set_collective(static_cast<uint32_t>(spec.kind));
  message.set_root(spec.root);
  message.set_row_elements(spec.row_elements);
  message.set_prescale(spec.prescale);
  message.set_postscale(spec.postscale);
  message.set_compression(spec.compression);
  message.set_columns(spec.columns);
  message.set_mode(spec.mode);
  message.set_shape(spec.shape);
  message.set_priority(spec.priority);
  message.set_result_priority(spec.result_priority);
  message.set_budget_bytes(spec.budget_bytes);
  return message;
}

Status status_from(const v1::Error& error) {
  return Status(static_cast<Code>(error.code()), error.message());
}

Result<PlacementPattern> pattern_from(const v1::JobStarted& started) {
  const auto& pattern = started.placement();
  if (pattern.empty()) return PlacementPattern();
  const auto of_job = [&](uint32_t shard) {
    return shard < static_cast<uint32_t>(started.shards_size());
  };
  if (static_cast<uint32_t>(pattern.size()) <= kPlacementEntriesMax &&
      static_cast<uint32_t>(started.shards_size()) <= kPlacementEntriesMax &&
      std::ranges::all_of(pattern, of_job))
    return PlacementPattern(
        std::make_shared<const std::vector<uint16_t>>(pattern.begin(), pattern.end()));
  return error("D602", "the coordinator's placement of job \"" + started.job() + "\", of " +
                           std::to_string(pattern.size()) + " entries, does not fit its " +
                           std::to_string(started.shards_size()) + " shards");
}

Result<std::vector<ShardSet>> shard_sets_from(const v1::ShardsChanged& changed) {
  const auto wrong = [&](int number) {
    return error("D602", "the coordinator's placement " + std::to_string(number) + " of job id " +
                             std::to_string(changed.job_id()) + " does not fit its " +
                             std::to_string(changed.shards_size()) + " shards");
  };
  std::vector<ShardSet> shard_sets;
  for (int number = 0; number < changed.placements_size(); ++number) {
    const v1::ShardSet& set = changed.placements(number);
    const auto below = [](int bound) {
      return [bound](uint32_t index) { return index < static_cast<uint32_t>(bound); };
    };
    const bool fits = set.members_size() > 0 &&
                      set.members_size() <= static_cast<int>(kPlacementEntriesMax) &&
                      set.pattern_size() <= static_cast<int>(kPlacementEntriesMax) &&
                      changed.shards_size() <= static_cast<int>(kPlacementEntriesMax) &&
                      std::ranges::all_of(set.members(), below(changed.shards_size())) &&
                      std::ranges::all_of(set.pattern(), below(set.members_size()));
    if (!fits) return wrong(number);
    ShardSet shard_set{static_cast<uint32_t>(set.members_size())};
    const auto list = [](const auto& field) {
      return std::make_shared<const std::vector<uint16_t>>(field.begin(), field.end());
    };
    if (set.pattern_size() > 0) shard_set.pattern = list(set.pattern());
    shard_set.members = list(set.members());
    shard_sets.push_back(std::move(shard_set));
  }
  if (shard_sets.empty()) return wrong(0);
  return shard_sets;
}

AddShards new_shards(const v1::ShardsChanged& changed, int known) {
  AddShards command{changed.job_id(), {}, {}};
  for (int index = 0; index < changed.shards_size(); ++index) {
    if (index >= known) command.addresses.push_back(changed.shards(index).address());
    if (changed.shards(index).lost()) command.lost.push_back(static_cast<uint32_t>(index));
  }
  return command;
}

}  // namespace gradbus
