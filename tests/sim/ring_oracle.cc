#include "tests/sim/ring_oracle.h"

#include <algorithm>
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

Random stream(uint64_t seed, uint32_t tensor, uint64_t round, uint32_t rank) {
  for (const uint64_t part : {uint64_t{tensor}, round, uint64_t{rank}})
    seed = Random(seed + part)();
  return Random(seed);
}

// One element of the result against all ranks' elements.
template <typename T>
bool is_sum(const std::vector<T>& elements, uint32_t divisor, T result) {
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

std::string name_of(uint32_t tensor, uint64_t round) {
  return "tensor " + std::to_string(tensor) + " round " + std::to_string(round);
}

}  // namespace

void add(DType dtype, const std::byte* source, std::byte* target, size_t bytes) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < bytes / sizeof(T); ++i) {
      store<T>(target, i, load<T>(target, i) + load<T>(source, i));
    }
  });
}

void divide(DType dtype, std::byte* target, size_t bytes, uint32_t divisor) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < bytes / sizeof(T); ++i) {
      store<T>(target, i, load<T>(target, i) / static_cast<T>(divisor));
    }
  });
}

Bytes RingOracle::input(uint32_t tensor, uint64_t round, uint32_t rank) const {
  const CollectivePlan& plan = scenario_.tensors[tensor];
  Random random = stream(scenario_.seed, tensor, round, rank);
  return with_type(plan.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool gathers = plan.kind == CollectiveKind::kAllGather;
    const uint64_t bytes = gathers ? block_bytes(tensor, round, rank) : plan.count * sizeof(T);
    Bytes elements(bytes);
    for (size_t i = 0; i < bytes / sizeof(T); ++i) {
      store<T>(elements.data(), i, random_element<T>(random));
    }
    return elements;
  });
}

uint64_t RingOracle::block_bytes(uint32_t tensor, uint64_t round, uint32_t rank) const {
  const CollectivePlan& plan = scenario_.tensors[tensor];
  Random random = stream(~scenario_.seed, tensor, round, rank);
  if (pick(random, 0, 3) == 0) return 0;
  return pick(random, 0, plan.count) * dtype_bytes(plan.dtype);
}

std::string RingOracle::check(uint32_t tensor, uint64_t round, const Bytes& area) const {
  const CollectivePlan& plan = scenario_.tensors[tensor];
  switch (plan.kind) {
    case CollectiveKind::kAllReduce: return check_sum(tensor, round, area);
    case CollectiveKind::kBroadcast:
      return area == input(tensor, round, plan.root) ? ""
                                                     : name_of(tensor, round) + ": not the root's";
    case CollectiveKind::kAllGather: return check_blocks(tensor, round, area);
  }
  return "unknown collective";
}

std::string RingOracle::check_sum(uint32_t tensor, uint64_t round, const Bytes& area) const {
  const CollectivePlan& plan = scenario_.tensors[tensor];
  const uint32_t divisor = plan.op == ReduceOp::kAverage ? scenario_.world() : 1;
  std::vector<Bytes> inputs;
  for (uint32_t rank = 0; rank < scenario_.world(); ++rank) {
    inputs.push_back(input(tensor, round, rank));
  }
  return with_type(plan.dtype, [&](auto zero) -> std::string {
    using T = decltype(zero);
    std::vector<T> elements(inputs.size());
    for (size_t i = 0; i < plan.count; ++i) {
      for (size_t rank = 0; rank < inputs.size(); ++rank) {
        elements[rank] = load<T>(inputs[rank].data(), i);
      }
      if (is_sum(elements, divisor, load<T>(area.data(), i))) continue;
      return name_of(tensor, round) + ": wrong sum of element " + std::to_string(i);
    }
    return "";
  });
}

std::string RingOracle::check_blocks(uint32_t tensor, uint64_t round, const Bytes& area) const {
  const CollectivePlan& plan = scenario_.tensors[tensor];
  const uint64_t capacity = plan.count * dtype_bytes(plan.dtype);
  for (uint32_t rank = 0; rank < scenario_.world(); ++rank) {
    const Bytes block = input(tensor, round, rank);
    if (std::equal(block.begin(), block.end(), area.begin() + static_cast<long>(rank * capacity))) {
      continue;
    }
    return name_of(tensor, round) + ": wrong block of rank " + std::to_string(rank);
  }
  return "";
}

// Of all chunks, an agent sends a partial sum but for those it owns, and a result but for those
// whose owner is its successor: 2 (agents - 1) / agents of the tensor when the chunks divide
// evenly.
uint64_t RingOracle::all_reduce_frames(const CollectivePlan& plan, uint32_t agent) const {
  uint64_t frames = 0;
  for (uint64_t chunk = 0; chunk < plan.chunks(); ++chunk) {
    frames += chunk % scenario_.agents != agent;
    frames += chunk % scenario_.agents != (agent + 1) % scenario_.agents;
  }
  return frames;
}

uint64_t RingOracle::frames_sent(uint32_t tensor, uint64_t round, uint32_t agent) const {
  const CollectivePlan& plan = scenario_.tensors[tensor];
  const uint32_t successor = (agent + 1) % scenario_.agents;
  if (plan.kind == CollectiveKind::kAllReduce) return all_reduce_frames(plan, agent);
  if (plan.kind == CollectiveKind::kBroadcast) {
    return scenario_.agent_of_rank[plan.root] == successor ? 0 : plan.chunks();
  }
  const uint64_t chunk_bytes = plan.chunk_elements * dtype_bytes(plan.dtype);
  uint64_t frames = 0;
  for (uint32_t rank = 0; rank < scenario_.world(); ++rank) {
    if (scenario_.agent_of_rank[rank] == successor) continue;
    const uint64_t bytes = block_bytes(tensor, round, rank);
    frames += std::max<uint64_t>(1, (bytes + chunk_bytes - 1) / chunk_bytes);
  }
  return frames;
}

}  // namespace gradbus::sim
