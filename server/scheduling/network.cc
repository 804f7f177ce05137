#include "server/scheduling/network.h"

#include <algorithm>
#include <bit>

#include "common/check.h"

namespace gradbus::scheduling {
namespace {

constexpr Algorithm kModelled[] = {Algorithm::kRing, Algorithm::kHalvingDoubling,
                                   Algorithm::kRecursiveDoubling, Algorithm::kTree};

double log2_up(uint32_t nodes) { return std::bit_width(nodes - 1); }

LinearCost sum(const LinearCost& a, const LinearCost& b) {
  return {a.startup_us + b.startup_us, a.byte_ns + b.byte_ns};
}

// `combine_ns`: of the bytes that arrive; 0 for an all-gather.
LinearCost half(double messages, const Network& network, double combine_ns) {
  const double n = network.nodes;
  return {messages * network.alpha_us, (n - 1) / n * (network.beta_ns + combine_ns)};
}

LinearCost tree_cost(CollectiveKind kind, const Network& network) {
  const double n = network.nodes;
  const double levels = log2_up(network.nodes);
  const double startup = 2 * levels * network.alpha_us;
  const double part = (n - 1) / n * network.beta_ns;
  switch (kind) {
    case CollectiveKind::kReduceScatter:
      return {startup, levels * (network.beta_ns + network.gamma_ns) + part};
    case CollectiveKind::kAllGather: return {startup, part + levels * network.beta_ns};
    default: return {startup, levels * (2 * network.beta_ns + network.gamma_ns)};
  }
}

LinearCost halves_cost(CollectiveKind kind, double messages, const Network& network) {
  switch (kind) {
    case CollectiveKind::kReduceScatter: return half(messages, network, network.gamma_ns);
    case CollectiveKind::kAllGather: return half(messages, network, 0);
    default: return sum(half(messages, network, network.gamma_ns), half(messages, network, 0));
  }
}

LinearCost shards_cost(CollectiveKind kind, const Network& network) {
  const bool is_half = kind != CollectiveKind::kAllReduce;
  const bool sums = kind != CollectiveKind::kAllGather;
  const double replicas = network.replicas;
  const double incast = std::max(1.0, replicas * network.nodes / network.shards);
  return {(is_half ? 1 : 2) * replicas * network.alpha_us,
          incast * (network.beta_ns + (sums ? network.gamma_ns : 0))};
}

}  // namespace

bool models(Algorithm algorithm) {
  return std::find(std::begin(kModelled), std::end(kModelled), algorithm) != std::end(kModelled);
}

LinearCost collective_cost(CollectiveKind kind, Algorithm algorithm, const Network& network) {
  GRADBUS_CHECK(models(algorithm) && network.nodes > 0);
  if (network.nodes == 1) return {};
  if (network.shards != 0) return shards_cost(kind, network);
  const double levels = log2_up(network.nodes);
  if (algorithm == Algorithm::kRing) return halves_cost(kind, network.nodes - 1.0, network);
  if (algorithm == Algorithm::kTree) return tree_cost(kind, network);
  if (algorithm == Algorithm::kRecursiveDoubling && kind == CollectiveKind::kAllReduce)
    return {levels * network.alpha_us, levels * (network.beta_ns + network.gamma_ns)};
  return halves_cost(kind, levels, network);
}

double collective_us(CollectiveKind kind, double bytes, const Network& network) {
  if (network.algorithm != Algorithm::kAuto)
    return collective_cost(kind, network.algorithm, network).us(bytes);
  double best = collective_cost(kind, Algorithm::kRing, network).us(bytes);
  for (const Algorithm algorithm : kModelled)
    best = std::min(best, collective_cost(kind, algorithm, network).us(bytes));
  return best;
}

double startup_us(CollectiveKind kind, const Network& network) {
  return collective_us(kind, 0, network);
}

}  // namespace gradbus::scheduling
