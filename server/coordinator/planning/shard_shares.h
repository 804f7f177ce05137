// Which share of the tensors each parameter-server shard holds, so that the slowest network
// interface of the job finishes as early as possible. Pure functions.
//
// The model is that of BytePS (Jiang et al. 2020, section 4.1), for any bandwidths: in a round,
// each of n agents pushes M bytes and pulls M bytes. An interface with `a` agents of the job (0 or
// 1, as a rule) and shards that hold the part x has each way, in units of M,
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
  double bandwidth = 1;  // above 0, in any unit
};

// The time of the slowest network for a round in which shards of network i hold the part
// `shares[i]`, as a multiple of M / (unit of bandwidth).
double round_time(std::span<const ShardNetwork> networks, std::span<const double> shares);

// Equal shares of all shards, summed by network. At least one network must have a shard.
std::vector<double> equal_shares(std::span<const ShardNetwork> networks);

// The shares with the smallest round_time(), by network; their sum is 1. If several are as good,
// the ones nearest to equal shares.
std::vector<double> best_shares(std::span<const ShardNetwork> networks);

// The pattern of proto/placement.h for the shares of single shards; empty for equal shares. It is
// the shortest pattern in which every shard is within 1 % of a mean share, or the best one of up to
// kPlacementEntriesMax entries. In any row of chunks, a shard has at most one chunk more or less
// than its share (Tijdeman 1980, "The chairman assignment problem").
std::vector<uint32_t> placement_pattern(std::span<const double> shares);

}  // namespace gradbus
