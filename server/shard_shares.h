// How much of what lies on parameter-server shards each of them gets, so that the busiest network
// interface of the job is done as early as it can be. Pure functions.
//
// The model is that of BytePS (Jiang et al. 2020, section 4.1), for any bandwidths: of a round each
// of n agents pushes M bytes and pulls M bytes. An interface with `a` agents of the job (0 or 1, as
// a rule) and shards that hold the part x has each way, in units of M,
//     its agents' traffic with other interfaces' shards   a (1 - x)
//     its shards' with other interfaces' agents           (n - a) x
// so its time is (a + (n - 2a) x) / bandwidth. What an agent exchanges with a shard beside it
// crosses no network. With equal bandwidths, k shards alone and one beside each of n agents this is
// the paper's x = (n - k) / (n^2 + k n - 2 k) beside an agent and 2 (n - 1) / (n^2 + k n - 2 k)
// alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gradbus {

// A network interface and what the job has on it.
struct ShardNetwork {
  uint32_t agents = 0;
  uint32_t shards = 0;
  double bandwidth = 1;  // above 0, in any partition
};

// When the last one is done with a round in which shards of network i hold the part `shares[i]`: in
// M / partition of bandwidth.
double round_time(std::span<const ShardNetwork> networks, std::span<const double> shares);

// Each shard the same, by network. Some network has a shard.
std::vector<double> equal_shares(std::span<const ShardNetwork> networks);

// By network, the sum is 1: the least round_time() there is. Where several are as good, the nearest
// to equal parts; those themselves when they are.
std::vector<double> best_shares(std::span<const ShardNetwork> networks);

// The pattern of proto/placement.h for the parts that single shards are to hold; empty for equal
// ones. It is the shortest that has every shard within 1 % of a mean part, or the best there is of
// up to kPlacementEntriesMax entries. In any row of chunks a shard has at most one more or less
// than its part of them (Tijdeman 1980, "The chairman assignment problem").
std::vector<uint32_t> placement_pattern(std::span<const double> shares);

}  // namespace gradbus
