#include "server/coordinator/planning/shard_shares.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/check.h"
#include "proto/placement.h"

namespace gradbus {
namespace {

constexpr double kNone = 1e-9;        // a difference that is rounding
constexpr double kShareError = 0.01;  // of a mean part
constexpr int kHalvings = 200;

struct Range {
  double least = 0;
  double most = 0;
  bool empty() const { return least > most; }
};

uint32_t agents_of(std::span<const ShardNetwork> networks) {
  uint32_t agents = 0;
  for (const ShardNetwork& network : networks) agents += network.agents;
  return agents;
}

double slope_of(const ShardNetwork& network, double agents) {
  return agents - 2.0 * network.agents;
}

// The parts that a network can hold and be done by `time`.
Range parts_within(const ShardNetwork& network, double agents, double time) {
  const double room = time * network.bandwidth - network.agents;
  const double slope = slope_of(network, agents);
  Range range{0, network.shards == 0 ? 0.0 : 1.0};
  if (slope > 0) range.most = std::min(range.most, room / slope);
  if (slope < 0) range.least = std::max(range.least, room / slope);
  if (slope == 0 && room < 0) range.most = -1;
  return range;
}

bool can_be_done(std::span<const ShardNetwork> networks, double agents, double time) {
  Range sum;
  for (const ShardNetwork& network : networks) {
    const Range range = parts_within(network, agents, time);
    if (range.empty()) return false;
    sum = {sum.least + range.least, sum.most + range.most};
  }
  return sum.least <= 1 && sum.most >= 1;
}

// The least x in [low, high] from which on `fits` is true, by halving; it is true at `high`.
template <typename Fits>
double least_that(double low, double high, const Fits& fits) {
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = low + (high - low) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

// ---- patterns

// Largest remainders: how many of `entries` each shard gets.
std::vector<uint32_t> counts_for(std::span<const double> shares, uint32_t entries) {
  std::vector<uint32_t> counts(shares.size());
  std::vector<std::pair<double, size_t>> rest;
  uint32_t given = 0;
  for (size_t shard = 0; shard < shares.size(); ++shard) {
    const double exact = shares[shard] * entries;
    counts[shard] = static_cast<uint32_t>(exact + kNone);
    given += counts[shard];
    rest.emplace_back(counts[shard] - exact, shard);
  }
  std::ranges::sort(rest);
  for (size_t i = 0; given < entries; ++i, ++given) ++counts[rest[i % rest.size()].second];
  return counts;
}

double error_of(std::span<const double> shares, std::span<const uint32_t> counts,
                uint32_t entries) {
  double error = 0;
  for (size_t shard = 0; shard < shares.size(); ++shard)
    error = std::max(error, std::abs(static_cast<double>(counts[shard]) / entries - shares[shard]));
  return error * static_cast<double>(shares.size());
}

std::vector<uint32_t> best_counts(std::span<const double> shares) {
  std::vector<uint32_t> best;
  double least = std::numeric_limits<double>::infinity();
  for (uint32_t entries = 1; entries <= kPlacementEntriesMax && least > kShareError; ++entries) {
    std::vector<uint32_t> counts = counts_for(shares, entries);
    const double error = error_of(shares, counts, entries);
    if (error >= least) continue;
    least = error;
    best = std::move(counts);
  }
  return best;
}

// Each place goes to the shard whose next one is due first, of those that have less than their
// part by enough (Tijdeman's rule).
std::vector<uint32_t> in_turn(std::span<const uint32_t> counts) {
  const uint64_t entries = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  const auto used =
      static_cast<uint64_t>(std::ranges::count_if(counts, [](auto n) { return n > 0; }));
  const int64_t scale = used < 2 ? 1 : static_cast<int64_t>(2 * used - 2);
  const auto all = static_cast<int64_t>(entries);
  std::vector<int64_t> owed(counts.size());  // times entries
  std::vector<uint32_t> pattern;
  while (pattern.size() < entries) {
    size_t next = counts.size();
    double due = std::numeric_limits<double>::infinity();
    for (size_t shard = 0; shard < counts.size(); ++shard) {
      owed[shard] += counts[shard];
      if (counts[shard] == 0 || scale * owed[shard] < all) continue;
      const double when = static_cast<double>(scale * (all - owed[shard]) - all) /
                          static_cast<double>(counts[shard]);
      if (when >= due) continue;
      due = when;
      next = shard;
    }
    GRADBUS_CHECK(next < counts.size());
    owed[next] -= all;
    pattern.push_back(static_cast<uint32_t>(next));
  }
  return pattern;
}

}  // namespace

double round_time(std::span<const ShardNetwork> networks, std::span<const double> shares) {
  const double agents = agents_of(networks);
  double time = 0;
  for (size_t i = 0; i < networks.size(); ++i) {
    const double load = networks[i].agents + slope_of(networks[i], agents) * shares[i];
    time = std::max(time, load / networks[i].bandwidth);
  }
  return time;
}

std::vector<double> equal_shares(std::span<const ShardNetwork> networks) {
  double shards = 0;
  for (const ShardNetwork& network : networks) shards += network.shards;
  GRADBUS_CHECK(shards > 0);
  std::vector<double> shares;
  for (const ShardNetwork& network : networks) shares.push_back(network.shards / shards);
  return shares;
}

std::vector<double> best_shares(std::span<const ShardNetwork> networks) {
  const double agents = agents_of(networks);
  std::vector<double> shares = equal_shares(networks);
  const double equal_time = round_time(networks, shares);
  const double time = least_that(
      0, equal_time, [&](double middle) { return can_be_done(networks, agents, middle); });
  if (equal_time - time <= kNone * equal_time) return shares;
  // Of what can be held by then, as near to equal parts as it goes: each a multiple of its number
  // of shards, but for those that can have no more or no less.
  const auto parts = [&](double of_a_shard) {
    std::vector<double> held;
    for (const ShardNetwork& network : networks) {
      const Range range = parts_within(network, agents, time);
      held.push_back(std::clamp(network.shards * of_a_shard, range.least, range.most));
    }
    return held;
  };
  const auto sum = [](const std::vector<double>& held) {
    return std::accumulate(held.begin(), held.end(), 0.0);
  };
  shares = parts(least_that(0, 1, [&](double middle) { return sum(parts(middle)) >= 1; }));
  const double all = sum(shares);
  for (double& share : shares) share /= all;
  return shares;
}

std::vector<uint32_t> placement_pattern(std::span<const double> shares) {
  const std::vector<uint32_t> counts = best_counts(shares);
  const bool equal = std::ranges::all_of(counts, [&](uint32_t n) { return n == counts[0]; });
  return equal ? std::vector<uint32_t>() : in_turn(counts);
}

}  // namespace gradbus
