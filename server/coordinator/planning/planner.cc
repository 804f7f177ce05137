#include "server/coordinator/planning/planner.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "common/check.h"
#include "common/errors.h"
#include "proto/algorithms.h"
#include "proto/chunk_plan.h"
#include "proto/frame.h"
#include "server/coordinator/planning/align.h"

namespace gradbus {
namespace {

CollectiveKind kind_of(const v1::TensorSpec& spec) {
  return static_cast<CollectiveKind>(spec.collective());
}

// The target in elements: aligned, at least one alignment unit, at most a frame.
uint64_t target_elements(uint64_t element_bytes, uint64_t chunk_bytes) {
  const uint64_t bytes = std::min<uint64_t>(chunk_bytes, kFramePayloadBytesMax);
  return std::max(bytes / element_bytes / kAlignElements, uint64_t{1}) * kAlignElements;
}

// Elements that the busiest of `agents` owners gets.
uint64_t busiest_share(uint64_t count, uint64_t elements, uint64_t agents) {
  return divide_up(divide_up(count, elements), agents) * elements;
}

// Begins with the cut into the fewest chunks that `agents` divides. Rounding to whole cache lines
// may leave the last owners without a chunk, so smaller chunks are tried, down to half, and the
// best is taken. An exact multiple always wins: its busiest share is below (count + elements) /
// agents, every other one's is at least that.
uint64_t balanced_elements(uint64_t count, uint64_t target, uint64_t agents) {
  const uint64_t chunks = round_up(divide_up(count, target), agents);
  const uint64_t largest = round_up(divide_up(count, chunks), kAlignElements);
  uint64_t best = largest;
  for (uint64_t elements = largest; elements * 2 >= largest; elements -= kAlignElements) {
    if (busiest_share(count, elements, agents) < busiest_share(count, best, agents))
      best = elements;
    if (divide_up(count, best) % agents == 0) break;
  }
  return best;
}

// Whole patterns, if that makes chunks shorter by a third at most. Else more chunks, until a shard
// has enough of them or they get too small.
uint64_t weighted_elements(uint64_t count, uint64_t element_bytes, uint64_t target,
                           const ShardCount& shards) {
  const uint64_t least = target_elements(element_bytes, kOwnerBytesMin);
  const uint64_t wanted = count / (kChunksPerShard * shards.shards) / kAlignElements;
  const uint64_t finer = std::min(target, std::max(least, wanted * kAlignElements));
  for (const uint64_t elements : {target, finer})
    if (divide_up(count, elements) >= 2 * uint64_t{shards.period})
      return balanced_elements(count, elements, shards.period);
  return finer;
}

// Elements that one pipeline runs over: a shard of reduce-scatter, else the whole tensor (or
// block).
uint64_t piece_elements(const v1::TensorSpec& spec, uint32_t world) {
  if (kind_of(spec) != CollectiveKind::kReduceScatter) return spec.count();
  const ChunkPlan plan{spec.count(), std::max<uint64_t>(spec.row_elements(), 1), world, 1};
  return plan.shard_elements(0);
}

uint64_t bytes_of(const v1::TensorSpec& spec) {
  return spec.count() * dtype_bytes(static_cast<DType>(spec.dtype()));
}

// Whether agents can do it so and, in deterministic mode, may.
bool allowed(const v1::TensorSpec& spec, Algorithm algorithm, bool deterministic) {
  if (!fits(kind_of(spec), algorithm)) return false;
  if (algorithm == Algorithm::kRecursiveDoubling && bytes_of(spec) > kFramePayloadBytesMax)
    return false;
  return !deterministic || is_deterministic(kind_of(spec), algorithm);
}

double time_of(const v1::TensorSpec& spec, const JobSize& size, Algorithm algorithm,
               uint64_t chunk_bytes, const PathCost& cost) {
  const uint64_t chunk = plan_chunk_elements(spec, size, chunk_bytes, algorithm) *
                         dtype_bytes(static_cast<DType>(spec.dtype()));
  return predicted_us({kind_of(spec), bytes_of(spec), chunk, size.agents, size.world}, algorithm,
                      cost);
}

// What a path wants, unless the user wants something else. Inside one node a chunk is a part of the
// cache and crosses no path.
uint64_t chunk_target(const JobSize& size, const PlanOptions& options) {
  if (options.chunk_bytes > 0) return options.chunk_bytes;
  return chunk_bytes_for(size.agents == 1 ? kTcpPath : path_cost(options.told, options.measured));
}

std::string milliseconds(double us) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g ms", us / 1000);
  return text;
}

struct Choice {
  Algorithm algorithm = Algorithm::kAuto;
  std::string why;
};

// The first of equals, in the order of their numbers.
Choice fastest(const v1::TensorSpec& spec, const JobSize& size, const PlanOptions& options) {
  const PathCost cost =
      path_cost(options.told, options.deterministic ? PathFigures{} : options.measured);
  const uint64_t chunk_bytes =
      options.deterministic ? chunk_bytes_for(cost) : chunk_target(size, options);
  Algorithm best = Algorithm::kAuto;
  Algorithm next = Algorithm::kAuto;
  double best_us = 0;
  double next_us = 0;
  for (uint32_t number = 1; is_algorithm(number); ++number) {
    const auto algorithm = static_cast<Algorithm>(number);
    if (!allowed(spec, algorithm, options.deterministic)) continue;
    const double us = time_of(spec, size, algorithm, chunk_bytes, cost);
    if (best == Algorithm::kAuto || us < best_us) {
      next = best, next_us = best_us;
      best = algorithm, best_us = us;
    } else if (next == Algorithm::kAuto || us < next_us) {
      next = algorithm, next_us = us;
    }
  }
  GRADBUS_CHECK(best != Algorithm::kAuto);
  std::string why = milliseconds(best_us) + " predicted";
  if (next != Algorithm::kAuto)
    why.append(", ").append(algorithm_name(next)).append(" ").append(milliseconds(next_us));
  return {best, why};
}

}  // namespace

uint64_t plan_chunk_elements(const v1::TensorSpec& spec, const JobSize& size, uint64_t chunk_bytes,
                             Algorithm algorithm) {
  const uint64_t element_bytes = dtype_bytes(static_cast<DType>(spec.dtype()));
  GRADBUS_CHECK(element_bytes > 0 && size.agents > 0 && size.world >= size.agents);
  const uint64_t count = piece_elements(spec, size.world);
  if (size.agents > 1 && algorithm == Algorithm::kRecursiveDoubling)
    return std::max<uint64_t>(count, 1);
  const uint64_t target = target_elements(element_bytes, chunk_bytes);
  const bool rotates = size.agents > 1 && kind_of(spec) == CollectiveKind::kAllReduce &&
                       (algorithm == Algorithm::kRing || algorithm == Algorithm::kHalvingDoubling);
  if (rotates && count * element_bytes >= size.agents * kOwnerBytesMin)
    return balanced_elements(count, target, size.agents);
  return std::clamp(count, uint64_t{1}, target);
}

TensorPlan plan_tensor(const v1::TensorSpec& spec, const JobSize& size,
                       const PlanOptions& options) {
  const bool forced = allowed(spec, options.algorithm, options.deterministic);
  Choice choice =
      forced ? Choice{options.algorithm, "asked for by --algorithm"} : fastest(spec, size, options);
  if (size.agents == 1) choice.why = "its ranks, on one node, sum it themselves";
  TensorPlan plan{choice.algorithm,
                  plan_chunk_elements(spec, size, chunk_target(size, options), choice.algorithm)};
  plan.why = std::move(choice.why);
  return plan;
}

TensorPlan plan_on_shards(const v1::TensorSpec& spec, const ShardCount& shards,
                          const PlanOptions& options) {
  const uint64_t element_bytes = dtype_bytes(static_cast<DType>(spec.dtype()));
  const uint64_t chunk_bytes = options.chunk_bytes > 0
                                   ? options.chunk_bytes
                                   : chunk_bytes_for(path_cost(options.told, options.measured));
  const uint64_t target = target_elements(element_bytes, chunk_bytes);
  const bool balance = spec.count() * element_bytes >= shards.shards * kOwnerBytesMin;
  TensorPlan plan{Algorithm::kShards, std::clamp(spec.count(), uint64_t{1}, target)};
  plan.why = "its mode";
  if (balance)
    plan.chunk_elements = shards.period == shards.shards
                              ? balanced_elements(spec.count(), target, shards.shards)
                              : weighted_elements(spec.count(), element_bytes, target, shards);
  return plan;
}

Result<Algorithm> parse_algorithm(const std::string& name, bool deterministic) {
  std::string known;
  for (uint32_t number = 0; is_algorithm(number); ++number) {
    const auto algorithm = static_cast<Algorithm>(number);
    if (algorithm == Algorithm::kShards) continue;  // asked for by a tensor's mode
    known += (known.empty() ? "" : ", ") + std::string(algorithm_name(algorithm));
    if (algorithm_name(algorithm) != name) continue;
    const bool ordered = number == 0 || is_deterministic(CollectiveKind::kAllReduce, algorithm);
    if (!deterministic || ordered) return algorithm;
    return error("F100", "--algorithm=" + name + " does not give the same bits in every run",
                 "use --algorithm=chain or recursive_doubling, or leave out --deterministic");
  }
  return error("F100", "--algorithm \"" + name + "\" is unknown; there are: " + known);
}

}  // namespace gradbus
