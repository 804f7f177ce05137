#include "tests/sim/ring_scenario.h"

#include <algorithm>

namespace gradbus::sim {
namespace {

std::vector<uint32_t> random_placement(Random& random, uint32_t agents) {
  std::vector<uint32_t> agent_of_rank;
  for (uint32_t agent = 0; agent < agents; ++agent) {
    agent_of_rank.insert(agent_of_rank.end(), pick(random, 1, 3), agent);
  }
  std::shuffle(agent_of_rank.begin(), agent_of_rank.end(), random);
  return agent_of_rank;
}

CollectivePlan random_tensor(Random& random, const Scenario& scenario) {
  constexpr DType kDTypes[] = {DType::kF32, DType::kI64, DType::kI32};
  CollectivePlan plan;
  plan.kind = static_cast<CollectiveKind>(pick(random, 1, 3));
  plan.dtype = kDTypes[pick(random, 0, 2)];
  const bool reduces = plan.kind == CollectiveKind::kAllReduce;
  plan.op = reduces ? static_cast<ReduceOp>(pick(random, 1, 2)) : ReduceOp::kNone;
  plan.count = pick(random, 0, 3) == 0 ? pick(random, 0, 1) : pick(random, 0, 24);
  plan.chunk_elements = pick(random, 1, 9);
  plan.root = static_cast<uint32_t>(pick(random, 0, scenario.world() - 1));
  plan.agent_of_rank = scenario.agent_of_rank;
  plan.agents = scenario.agents;
  return plan;
}

int random_dependency(Random& random, int tensor) {
  if (tensor == 0 || pick(random, 0, 2) != 0) return -1;
  return static_cast<int>(pick(random, 0, static_cast<uint64_t>(tensor) - 1));
}

void add_tensors(Random& random, Scenario& scenario, uint64_t tensors) {
  for (uint64_t i = 0; i < tensors; ++i) {
    scenario.tensors.push_back(random_tensor(random, scenario));
  }
  scenario.begin_after.resize(scenario.agents);
  scenario.begin_time.resize(scenario.agents);
  for (uint32_t agent = 0; agent < scenario.agents; ++agent) {
    for (uint64_t i = 0; i < tensors; ++i) {
      scenario.begin_after[agent].push_back(random_dependency(random, static_cast<int>(i)));
      scenario.begin_time[agent].push_back(pick(random, 0, 3) * pick(random, 0, 40));
    }
  }
}

}  // namespace

Scenario random_scenario(uint64_t seed) {
  Random random(seed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.agents = static_cast<uint32_t>(pick(random, 2, 5));
  scenario.agent_of_rank = random_placement(random, scenario.agents);
  scenario.rounds = pick(random, 1, 3);
  scenario.buffers = static_cast<uint32_t>(pick(random, 1, 6));
  scenario.wire_frames = static_cast<uint32_t>(pick(random, 1, 5));
  add_tensors(random, scenario, pick(random, 1, 6));
  return scenario;
}

Scenario opposite_orders(uint64_t seed, uint32_t tensors, uint32_t buffers) {
  Random random(seed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.agents = static_cast<uint32_t>(pick(random, 2, 4));
  scenario.agent_of_rank = random_placement(random, scenario.agents);
  scenario.rounds = 2;
  scenario.buffers = buffers;
  add_tensors(random, scenario, tensors);
  for (uint32_t agent = 0; agent < scenario.agents; ++agent) {
    for (uint32_t i = 0; i < tensors; ++i) {
      scenario.begin_time[agent][i] = uint64_t{40} * (agent % 2 == 0 ? i : tensors - 1 - i);
    }
  }
  return scenario;
}

Scenario one_all_reduce(uint64_t seed, uint32_t agents, uint64_t chunks) {
  Random random(seed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.agents = agents;
  scenario.agent_of_rank = random_placement(random, agents);
  add_tensors(random, scenario, 1);
  CollectivePlan& plan = scenario.tensors[0];
  plan.kind = CollectiveKind::kAllReduce;
  plan.op = ReduceOp::kSum;
  plan.count = chunks;
  plan.chunk_elements = 1;
  return scenario;
}

}  // namespace gradbus::sim
