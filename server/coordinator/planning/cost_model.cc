#include "server/coordinator/planning/cost_model.h"

#include <algorithm>
#include <bit>

#include "proto/frame.h"

namespace gradbus {
namespace {

constexpr uint64_t kChunkBytesMin = 64 << 10;
constexpr double kMessagesPerChunk = 4;

double first_known(double told, double measured, double otherwise) {
  return told > 0 ? told : measured > 0 ? measured : otherwise;
}

struct Terms {
  double hops = 0;      // of the longest way, one chunk each
  double bytes = 0;     // through the busiest agent
  double combined = 0;  // bytes, by the busiest agent
};

double log2_up(uint32_t agents) { return std::bit_width(agents - 1); }

// Sums to the owners and, for all-reduce, results back: `ways` is 2, else 1.
Terms reduction(const ExchangeSize& e, Algorithm algorithm, const PathCost& cost) {
  const double n = e.agents;
  const double levels = log2_up(e.agents);
  const auto bytes = static_cast<double>(e.bytes);
  const double ways = e.kind == CollectiveKind::kAllReduce ? 2 : 1;
  const bool shared = e.kind != CollectiveKind::kReduce;  // all agents own equally much
  const double share = bytes * (n - 1) / n;
  switch (algorithm) {
    case Algorithm::kRing:
      return {ways * (n - 1), shared ? ways * share : bytes, shared ? share : bytes};
    case Algorithm::kHalvingDoubling:
      return {ways * levels, ways * share * (n > 2 ? cost.crowding : 1), share};
    case Algorithm::kTree: return {ways * levels, levels * bytes, levels * bytes};
    default: break;
  }
  // A chain. Those in the middle of an all-reduce pass all sums one way and all results the other.
  const bool scattered = e.kind == CollectiveKind::kReduceScatter;
  return {ways * (n - 1),
          scattered ? share
          : n > 2   ? ways * bytes
                    : bytes,
          scattered ? share : bytes};
}

Terms movement(const ExchangeSize& e, Algorithm algorithm, const PathCost& cost) {
  const double n = e.agents;
  const double levels = log2_up(e.agents);
  const auto block = static_cast<double>(e.bytes);
  const double crowding = n > 2 ? cost.crowding : 1;
  if (e.kind == CollectiveKind::kBroadcast) {
    if (algorithm == Algorithm::kTree) return {levels, levels * block, 0};
    if (algorithm == Algorithm::kDirect) return {1, (n - 1) * block, 0};
    return {n - 1, block, 0};
  }
  const double gathered = (n - 1) / n * e.world * block;  // what an agent lacks of all blocks
  if (algorithm == Algorithm::kRing) return {n - 1, gathered, 0};
  return {algorithm == Algorithm::kTree ? levels : 1, gathered * crowding, 0};
}

// No credits and no pipeline; agents beyond a power of two cost a message before and after.
double doubling_us(const ExchangeSize& e, const PathCost& cost) {
  const uint32_t core = std::bit_floor(e.agents);
  const double messages = std::bit_width(core) - 1 + (e.agents > core ? 2 : 0);
  const auto bytes = static_cast<double>(e.bytes);
  return messages * (cost.alpha_us + bytes * (cost.beta_ns + cost.gamma_ns) / 1000);
}

}  // namespace

PathCost path_cost(const PathFigures& told, const PathFigures& measured) {
  return {.alpha_us = first_known(told.alpha_us, measured.alpha_us, kTcpPath.alpha_us),
          .beta_ns = first_known(told.beta_ns, measured.beta_ns, kTcpPath.beta_ns),
          .gamma_ns = first_known(told.gamma_ns, measured.gamma_ns, kTcpPath.gamma_ns),
          .crowding = kTcpPath.crowding};
}

uint64_t chunk_bytes_for(const PathCost& cost) {
  const double bytes = kMessagesPerChunk * cost.alpha_us * 1000 / cost.beta_ns;
  const double most = kFramePayloadBytesMax;
  if (!(bytes < most)) return kFramePayloadBytesMax;
  return std::max(std::bit_ceil(static_cast<uint64_t>(bytes)), kChunkBytesMin);
}

double predicted_us(const ExchangeSize& e, Algorithm algorithm, const PathCost& cost) {
  if (e.agents < 2) return 0;
  if (algorithm == Algorithm::kRecursiveDoubling) return doubling_us(e, cost);
  const Terms terms =
      reduces(e.kind) ? reduction(e, algorithm, cost) : movement(e, algorithm, cost);
  const auto chunk = static_cast<double>(std::min(e.chunk_bytes, e.bytes));
  const double on_the_way = std::max(terms.bytes, terms.hops * chunk) * cost.beta_ns;
  const double combining = std::max(terms.combined, reduces(e.kind) ? chunk : 0) * cost.gamma_ns;
  return (1 + terms.hops) * cost.alpha_us + (on_the_way + combining) / 1000;
}

}  // namespace gradbus
