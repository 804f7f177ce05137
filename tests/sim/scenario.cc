#include "tests/sim/scenario.h"

#include <algorithm>

#include "proto/algorithms.h"

namespace gradbus::sim {
namespace {

std::vector<uint32_t> random_placement(Random& random, uint32_t agents) {
  std::vector<uint32_t> agent_of_rank;
  for (uint32_t agent = 0; agent < agents; ++agent)
    agent_of_rank.insert(agent_of_rank.end(), pick(random, 1, agents > 5 ? 2 : 3), agent);
  std::shuffle(agent_of_rank.begin(), agent_of_rank.end(), random);
  return agent_of_rank;
}

ReduceOp random_op(Random& random) {
  constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax};
  return kOps[pick(random, 0, 3)];
}

// Nothing, one element, a multiple of the chunk give or take one, or anything.
uint64_t random_count(Random& random, uint64_t chunk_elements, uint64_t most) {
  const uint64_t multiple = chunk_elements * pick(random, 1, 3);
  const uint64_t counts[] = {0, 1, multiple - 1, multiple, multiple + 1, pick(random, 0, most)};
  return counts[pick(random, 0, 5)];
}

void shape(CollectivePlan& plan, uint64_t count, uint64_t chunk_elements) {
  plan.count = count;
  plan.chunk_elements = chunk_elements;
  if (plan.algorithm == Algorithm::kRecursiveDoubling)
    plan.chunk_elements = std::max(count, chunk_elements);
}

CollectivePlan plan_of(Random& random, const Scenario& scenario, Way way) {
  constexpr DType kDTypes[] = {DType::kF32, DType::kI64, DType::kI32};
  CollectivePlan plan;
  plan.kind = way.kind;
  plan.algorithm = way.algorithm;
  plan.dtype = kDTypes[pick(random, 0, 2)];
  plan.op = reduces(plan.kind) ? random_op(random) : ReduceOp::kNone;
  plan.root = static_cast<uint32_t>(pick(random, 0, scenario.world() - 1));
  plan.agent_of_rank = scenario.agent_of_rank;
  plan.agents = scenario.agents;
  return plan;
}

CollectivePlan random_tensor(Random& random, const Scenario& scenario) {
  const std::vector<Way> ways = all_ways();
  CollectivePlan plan = plan_of(random, scenario, ways[pick(random, 0, ways.size() - 1)]);
  const uint64_t most = plan.kind == CollectiveKind::kAllToAll ? 6 : 24;
  const uint64_t chunk = pick(random, 1, most / 3 + 1);
  shape(plan, random_count(random, chunk, most), chunk);
  if (plan.kind == CollectiveKind::kReduceScatter) {
    plan.row_elements = pick(random, 1, 3);
    plan.count = plan.count / plan.row_elements * plan.row_elements;
  }
  return plan;
}

int random_dependency(Random& random, int tensor) {
  if (tensor == 0 || pick(random, 0, 2) != 0) return -1;
  return static_cast<int>(pick(random, 0, static_cast<uint64_t>(tensor) - 1));
}

void draw_begins(Random& random, Scenario& scenario) {
  scenario.begin_after.resize(scenario.agents);
  scenario.begin_time.resize(scenario.agents);
  for (uint32_t agent = 0; agent < scenario.agents; ++agent) {
    for (size_t i = 0; i < scenario.tensors.size(); ++i) {
      scenario.begin_after[agent].push_back(random_dependency(random, static_cast<int>(i)));
      scenario.begin_time[agent].push_back(pick(random, 0, 3) * pick(random, 0, 40));
    }
  }
}

Scenario start(Random& random, uint64_t seed, uint32_t agents) {
  Scenario scenario;
  scenario.seed = scenario.network_seed = seed;
  scenario.agents = agents;
  scenario.agent_of_rank = random_placement(random, agents);
  return scenario;
}

}  // namespace

std::vector<Way> all_ways() {
  std::vector<Way> ways;
  for (uint32_t kind = 1; is_collective(kind); ++kind) {
    for (uint32_t algorithm = 0; is_algorithm(algorithm); ++algorithm) {
      const Way way{static_cast<CollectiveKind>(kind), static_cast<Algorithm>(algorithm)};
      if (fits(way.kind, way.algorithm)) ways.push_back(way);
    }
  }
  return ways;
}

Scenario random_scenario(uint64_t seed) {
  Random random(seed);
  const bool many = pick(random, 0, 4) == 0;
  Scenario scenario =
      start(random, seed, static_cast<uint32_t>(many ? pick(random, 6, 9) : pick(random, 2, 5)));
  scenario.rounds = pick(random, 1, 3);
  scenario.buffers = static_cast<uint32_t>(pick(random, 1, 4));
  scenario.wire_frames = static_cast<uint32_t>(pick(random, 1, 5));
  const uint64_t tensors = pick(random, 1, many ? 2 : 6);
  for (uint64_t i = 0; i < tensors; ++i)
    scenario.tensors.push_back(random_tensor(random, scenario));
  draw_begins(random, scenario);
  return scenario;
}

Scenario opposite_orders(uint64_t seed, uint32_t tensors, uint32_t buffers) {
  Random random(seed);
  Scenario scenario = start(random, seed, static_cast<uint32_t>(pick(random, 2, 5)));
  scenario.rounds = 2;
  scenario.buffers = buffers;
  for (uint32_t i = 0; i < tensors; ++i)
    scenario.tensors.push_back(random_tensor(random, scenario));
  draw_begins(random, scenario);
  for (uint32_t agent = 0; agent < scenario.agents; ++agent) {
    for (uint32_t i = 0; i < tensors; ++i)
      scenario.begin_time[agent][i] = uint64_t{40} * (agent % 2 == 0 ? i : tensors - 1 - i);
  }
  return scenario;
}

Scenario one_tensor(uint64_t seed, Way way, uint32_t agents, uint64_t count,
                    uint64_t chunk_elements) {
  Random random(seed);
  Scenario scenario = start(random, seed, agents);
  scenario.tensors.push_back(plan_of(random, scenario, way));
  shape(scenario.tensors[0], count, chunk_elements);
  draw_begins(random, scenario);
  return scenario;
}

}  // namespace gradbus::sim
