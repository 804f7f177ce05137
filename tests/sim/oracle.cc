#include "tests/sim/oracle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace gradbus::sim {
namespace {

// Calls `function` with a value of the element's C++ type; the sim uses three dtypes.
template <typename Function>
auto with_type(DType dtype, Function function) {
  switch (dtype) {
    case DType::kI64: return function(int64_t{});
    case DType::kI32: return function(int32_t{});
    default: return function(float{});
  }
}

template <typename T>
T load(const std::byte* bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void store(std::byte* bytes, size_t index, T value) {
  std::memcpy(bytes + index * sizeof(T), &value, sizeof(T));
}

// Floats span 2^-20 to 2^20 in both signs, so that another order of additions gives other bits.
template <typename T>
T random_element(Random& random) {
  const auto integer = static_cast<int64_t>(pick(random, 0, 2'000'000)) - 1'000'000;
  if constexpr (std::is_integral_v<T>) return static_cast<T>(integer);
  return static_cast<T>(
      std::ldexp(static_cast<double>(integer) / 1e6, static_cast<int>(pick(random, 0, 40)) - 20));
}

Random stream(uint64_t seed, uint32_t tensor, uint64_t round, uint32_t index) {
  for (const uint64_t part : {uint64_t{tensor}, round, uint64_t{index}})
    seed = Random(seed + part)();
  return Random(seed);
}

template <typename T>
T combined(ReduceOp op, T first, T second) {
  if (op == ReduceOp::kMin) return std::min(first, second);
  if (op == ReduceOp::kMax) return std::max(first, second);
  return static_cast<T>(first + second);
}

// One element of the result against all ranks' elements.
template <typename T>
bool is_result(ReduceOp op, const std::vector<T>& elements, T result) {
  if (op == ReduceOp::kMin) return result == *std::min_element(elements.begin(), elements.end());
  if (op == ReduceOp::kMax) return result == *std::max_element(elements.begin(), elements.end());
  const auto divisor = static_cast<uint32_t>(op == ReduceOp::kAverage ? elements.size() : 1);
  if constexpr (std::is_integral_v<T>) {
    int64_t sum = 0;
    for (const T element : elements) sum += element;
    return result == static_cast<T>(sum / divisor);
  }
  double sum = 0;
  double magnitude = 0;
  for (const T element : elements) {
    sum += static_cast<double>(element);
    magnitude += std::abs(static_cast<double>(element));
  }
  // Each of n - 1 additions and the division is off by at most 2^-24 of a partial sum.
  const double bound = magnitude / divisor * static_cast<double>(elements.size() + 1) * 0x1p-24;
  return std::abs(static_cast<double>(result) - sum / divisor) <= bound;
}

std::string name_of(const CollectivePlan& plan, uint32_t tensor, uint64_t round) {
  return std::string(collective_name(plan.kind)) + " by " +
         std::string(algorithm_name(plan.algorithm)) + ", tensor " + std::to_string(tensor) +
         " round " + std::to_string(round);
}

}  // namespace

uint32_t source_rank(const CollectivePlan& plan, uint32_t index) {
  if (plan.kind == CollectiveKind::kAllToAll) return index / plan.world();
  const bool gathers =
      plan.kind == CollectiveKind::kAllGather || plan.kind == CollectiveKind::kGather;
  return gathers ? index : plan.root;
}

bool gets_block(const CollectivePlan& plan, uint32_t rank, uint32_t index) {
  switch (plan.kind) {
    case CollectiveKind::kGather: return rank == plan.root;
    case CollectiveKind::kScatter: return rank == index;
    case CollectiveKind::kAllToAll: return rank == index % plan.world();
    default: return true;
  }
}

void combine(const CollectivePlan& plan, const std::byte* first, const std::byte* second,
             std::byte* target, size_t bytes) {
  with_type(plan.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < bytes / sizeof(T); ++i)
      store<T>(target, i, combined(plan.op, load<T>(first, i), load<T>(second, i)));
  });
}

void divide(DType dtype, std::byte* target, size_t bytes, uint32_t divisor) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < bytes / sizeof(T); ++i)
      store<T>(target, i, load<T>(target, i) / static_cast<T>(divisor));
  });
}

Bytes Oracle::input(uint32_t tensor, uint64_t round, uint32_t index) const {
  Random random = stream(scenario_.seed, tensor, round, index);
  return with_type(scenario_.tensors[tensor].dtype, [&](auto zero) {
    using T = decltype(zero);
    Bytes elements(block_bytes(tensor, round, index));
    for (size_t i = 0; i < elements.size() / sizeof(T); ++i)
      store<T>(elements.data(), i, random_element<T>(random));
    return elements;
  });
}

uint64_t Oracle::block_bytes(uint32_t tensor, uint64_t round, uint32_t index) const {
  const CollectivePlan& plan = scenario_.tensors[tensor];
  const size_t element_bytes = dtype_bytes(plan.dtype);
  if (plan.kind != CollectiveKind::kAllGather && plan.kind != CollectiveKind::kGather)
    return plan.count * element_bytes;
  Random random = stream(~scenario_.seed, tensor, round, index);
  if (pick(random, 0, 3) == 0) return 0;
  return pick(random, 0, plan.count) * element_bytes;
}

std::string Oracle::check_sum(uint32_t tensor, uint64_t round, uint64_t first,
                              const Bytes& part) const {
  const CollectivePlan& plan = scenario_.tensors[tensor];
  std::vector<Bytes> inputs;
  for (uint32_t rank = 0; rank < scenario_.world(); ++rank)
    inputs.push_back(input(tensor, round, rank));
  return with_type(plan.dtype, [&](auto zero) -> std::string {
    using T = decltype(zero);
    std::vector<T> elements(inputs.size());
    for (size_t i = 0; i < part.size() / sizeof(T); ++i) {
      for (size_t rank = 0; rank < inputs.size(); ++rank)
        elements[rank] = load<T>(inputs[rank].data(), first + i);
      if (is_result(plan.op, elements, load<T>(part.data(), i))) continue;
      return name_of(plan, tensor, round) + ": wrong element " + std::to_string(first + i);
    }
    return "";
  });
}

std::string Oracle::check_block(uint32_t tensor, uint64_t round, uint32_t index,
                                const Bytes& block) const {
  if (block == input(tensor, round, index)) return "";
  return name_of(scenario_.tensors[tensor], tensor, round) + ": wrong block " +
         std::to_string(index);
}

// ---- frames

// Of all chunks, an agent sends a partial sum but for those it owns, and a result but for those
// whose owner is its successor: 2 (agents - 1) / agents of the tensor when the chunks divide
// evenly.
uint64_t Oracle::ring_frames(uint32_t tensor, uint32_t agent) const {
  uint64_t frames = 0;
  for (uint64_t chunk = 0; chunk < scenario_.tensors[tensor].chunks(); ++chunk) {
    frames += chunk % scenario_.agents != agent;
    frames += chunk % scenario_.agents != (agent + 1) % scenario_.agents;
  }
  return frames;
}

// A tree on n agents has n - 1 edges; each carries each chunk once, each way for all-reduce.
uint64_t Oracle::frames(uint32_t tensor, uint64_t round) const {
  const CollectivePlan& plan = scenario_.tensors[tensor];
  const uint64_t edges = scenario_.agents - 1;
  if (plan.algorithm == Algorithm::kRecursiveDoubling) {
    const uint64_t core = std::bit_floor(scenario_.agents);
    return core * static_cast<uint64_t>(std::countr_zero(core)) + 2 * (scenario_.agents - core);
  }
  if (!reduces(plan.kind)) return block_frames(tensor, round);
  return (plan.kind == CollectiveKind::kAllReduce ? 2 : 1) * edges * plan.chunks();
}

// Once to every other agent that has a rank which gets the block.
uint64_t Oracle::block_frames(uint32_t tensor, uint64_t round) const {
  const CollectivePlan& plan = scenario_.tensors[tensor];
  const uint64_t chunk_bytes = plan.chunk_elements * dtype_bytes(plan.dtype);
  uint64_t frames = 0;
  for (uint32_t index = 0; index < block_count(plan.kind, plan.world()); ++index) {
    const uint64_t bytes = block_bytes(tensor, round, index);
    const uint64_t chunks = std::max<uint64_t>(1, (bytes + chunk_bytes - 1) / chunk_bytes);
    for (uint32_t agent = 0; agent < scenario_.agents; ++agent) {
      if (agent == plan.agent_of_rank[source_rank(plan, index)]) continue;
      bool wanted = false;
      for (uint32_t rank = 0; rank < plan.world(); ++rank)
        wanted |= plan.agent_of_rank[rank] == agent && gets_block(plan, rank, index);
      frames += wanted ? chunks : 0;
    }
  }
  return frames;
}

}  // namespace gradbus::sim
