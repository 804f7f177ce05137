#include "server/coordinator/planning/shard_placement.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "proto/placement.h"
#include "server/coordinator/planning/shard_shares.h"

namespace gradbus {
namespace {

constexpr double kAsGood = 1.25;  // bandwidths that differ by less are equal
// Of the time that equal parts need. If less can be won, equal parts are kept: they are cut more
// evenly, and their chunks come in turn. In one measured run the model promised 3.6 %, and 18 %
// were lost.
constexpr double kWorthwhile = 0.9;
constexpr size_t kWeightedShardsMax = kPlacementEntriesMax / 8;

// "10.0.0.7" of "10.0.0.7:4411", "[fe80::1]" of "[fe80::1]:4411"; of several paths
// ("rdma=10.0.0.7:4411,tcp=10.1.0.7:4412") that of the one which is preferred.
std::string host_of(const std::string& address) {
  const std::string first = address.substr(0, address.find(','));
  const size_t begin = first.find('=') + 1;  // 0 where there is none
  return first.substr(begin, first.rfind(':') - begin);
}

bool is_loopback(const std::string& host) {
  return host.starts_with("127.") || host == "[::1]" || host == "localhost";
}

// The interfaces of a job's nodes, agents first.
class Interfaces {
 public:
  explicit Interfaces(std::string transport) : transport_(std::move(transport)) {}

  size_t add(const AgentInfo& info) {
    const size_t index = find_or_add(info);
    ShardNetwork& network = networks_[index];
    ++(info.shard ? network.shards : network.agents);
    told_[index] = std::max(told_[index], static_cast<double>(info.bits_per_s));
    if (!info.shard && first_agents_[index].empty()) first_agents_[index] = info.name;
    return index;
  }

  std::vector<ShardNetwork> networks() const {
    std::vector<ShardNetwork> networks = networks_;
    const std::vector<double> counted = counted_bandwidths(told_);
    for (size_t i = 0; i < networks.size(); ++i) networks[i].bandwidth = counted[i];
    return networks;
  }
  const std::string& first_agent(size_t index) const { return first_agents_[index]; }

 private:
  size_t find_or_add(const AgentInfo& info) {
    const auto address = info.addresses.find(transport_);
    const std::string host = address == info.addresses.end() ? "" : host_of(address->second);
    const bool known = !host.empty() && !is_loopback(host);
    const auto at = std::ranges::find(hosts_, host);
    if (known && at != hosts_.end()) return static_cast<size_t>(at - hosts_.begin());
    hosts_.push_back(known ? host : "");
    networks_.emplace_back();
    told_.push_back(0);
    first_agents_.emplace_back();
    return hosts_.size() - 1;
  }

  const std::string transport_;
  std::vector<std::string> hosts_;  // "": one that cannot be compared
  std::vector<ShardNetwork> networks_;
  std::vector<double> told_;
  std::vector<std::string> first_agents_;
};

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %%", share * 100);
  return text;
}

std::string describe(const AgentInfos& shards, const ShardPlacement& placement) {
  std::string text;
  size_t index = 0;
  for (const auto& [id, info] : shards) {
    if (index == kListedMax) return text + ", ...";
    text += (index == 0 ? "" : ", ") + info.name + " " + percent(placement.shares[index]);
    const std::string& agent = placement.beside[index++];
    if (!agent.empty()) text += " (beside " + agent + ")";
  }
  return text;
}

// By shard of a network's parts, which its shards share alike.
std::vector<double> of_single_shards(const std::vector<size_t>& network_of,
                                     const std::vector<ShardNetwork>& networks,
                                     const std::vector<double>& shares) {
  std::vector<double> of_shard;
  for (const size_t network : network_of)
    of_shard.push_back(shares[network] / networks[network].shards);
  return of_shard;
}

std::vector<double> shares_of(const std::vector<uint32_t>& pattern, size_t shards) {
  if (pattern.empty()) return std::vector<double>(shards, 1.0 / static_cast<double>(shards));
  std::vector<double> counts(shards);
  for (const uint32_t shard : pattern) ++counts[shard];
  for (double& count : counts) count /= static_cast<double>(pattern.size());
  return counts;
}

}  // namespace

std::vector<double> counted_bandwidths(const std::vector<double>& told) {
  std::vector<double> known;
  for (const double rate : told)
    if (rate > 0) known.push_back(rate);
  if (known.empty()) return std::vector<double>(told.size(), 1);
  std::ranges::sort(known, std::greater());
  std::vector<double> classes;  // the largest of each
  for (const double rate : known)
    if (classes.empty() || rate * kAsGood < classes.back()) classes.push_back(rate);
  const auto class_of = [&](double rate) {
    return *std::ranges::find_if(classes, [&](double top) { return rate * kAsGood >= top; });
  };
  const double median = class_of(known[(known.size() - 1) / 2]);
  std::vector<double> counted;
  for (const double rate : told) counted.push_back(rate > 0 ? class_of(rate) : median);
  return counted;
}

ShardPlacement place_shards(const AgentInfos& agents, const AgentInfos& shards,
                            const std::string& transport, bool equal) {
  ShardPlacement placement;
  if (shards.empty()) return placement;
  Interfaces interfaces(transport);
  for (const auto& [id, info] : agents) interfaces.add(info);
  std::vector<size_t> network_of;
  for (const auto& [id, info] : shards) network_of.push_back(interfaces.add(info));
  for (const size_t network : network_of)
    placement.beside.push_back(interfaces.first_agent(network));
  const std::vector<ShardNetwork> networks = interfaces.networks();
  const std::vector<double> best = best_shares(networks);
  const double gain = round_time(networks, best) / round_time(networks, equal_shares(networks));
  if (!equal && gain <= kWorthwhile && shards.size() <= kWeightedShardsMax)
    placement.pattern = placement_pattern(of_single_shards(network_of, networks, best));
  placement.shares = shares_of(placement.pattern, shards.size());
  placement.why = "shards hold " + describe(shards, placement);
  if (!placement.pattern.empty()) {
    placement.why += ": so that the busiest network needs " + percent(gain) +
                     " of the time that equal parts would";
  } else {
    placement.why += equal ? ": equal parts, by --equal-shards"
                           : ": equal parts, as good as any for these networks, or nearly so";
  }
  return placement;
}

}  // namespace gradbus
