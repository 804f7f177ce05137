#include "cli/cluster/cluster_layout.h"

#include <algorithm>

#include "common/edit_distance.h"
#include "common/errors.h"
#include "common/units.h"

namespace gradbus {
namespace {

constexpr char kOwn[] = "own";
constexpr char kAgents[] = "agents";

std::string numbered(const char* what, int number) { return what + std::to_string(number); }

std::vector<std::string> agent_names(int agents) {
  std::vector<std::string> names;
  for (int i = 0; i < agents; ++i) names.push_back(numbered("agent-", i));
  return names;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

Status unknown(const std::string& option, const std::string& word,
               const std::vector<std::string>& known) {
  const std::string nearest = closest_name(word, known);
  std::string all;
  for (size_t i = 0; i < known.size() && i < 8; ++i) all += (i == 0 ? "" : ", ") + known[i];
  if (known.size() > 8) all += ", ...";
  return error("H200", option + " has \"" + word.substr(0, 40) + "\"; there are: " + all,
               nearest.empty() ? "take one of these" : "did you mean: " + nearest);
}

// By shard, one of: own, agent-0, agent-1 ...
Result<std::vector<std::string>> wanted_places(const std::string& text, int agents, int shards) {
  const auto count = static_cast<size_t>(shards);
  if (text.empty() || text == kOwn) return std::vector<std::string>(count, kOwn);
  std::vector<std::string> known = agent_names(agents);
  if (text == kAgents) {
    std::vector<std::string> places;
    for (size_t i = 0; i < count; ++i) places.push_back(known[i % known.size()]);
    return places;
  }
  std::vector<std::string> places = split(text);
  known.insert(known.begin(), kOwn);
  if (places.size() == 1) known.insert(known.begin(), kAgents);
  for (const std::string& place : places)
    if (std::ranges::find(known, place) == known.end()) return unknown("--shards-on", place, known);
  if (places.size() == count) return places;
  return error(
      "H200",
      "--shards-on names " + counted(places.size(), "place") + " for " + counted(shards, "shard"),
      "one word for each shard, own or an agent's name, e.g. agent-0,own; or agents, which "
      "is one beside each in turn");
}

Status check_use(const RunOptions& options) {
  if (!options.shards_on.empty() && shard_count(options) == 0)
    return error("H200", "--shards-on is for embedded shards, and there are none",
                 "add --shards N");
  for (const char* option : {"--shards-on", "--link-of"}) {
    const bool given = option[2] == 's' ? !options.shards_on.empty() : !options.link_of.empty();
    if (given && options.link.empty())
      return error("H200", std::string(option) + " is for daemons on links, and there are none",
                   "add --link RATE, e.g. --link 1gbit");
  }
  return {};
}

// "agent-1=500mbit": that node's link.
Status set_link(const std::string& text, const std::vector<std::string>& places,
                ClusterLayout& layout) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  std::vector<std::string> known = agent_names(layout.agents);
  for (size_t i = 0; i < places.size(); ++i)
    known.push_back(numbered("shard-", static_cast<int>(i)));
  const auto at = std::ranges::find(known, name);
  if (at == known.end()) return unknown("--link-of", name, known);
  if (equals == std::string::npos)
    return error("H200", "--link-of " + name + " says no rate",
                 "for example: --link-of " + name + "=500mbit");
  const Result<LinkSpec> link = parse_link(text.substr(equals + 1));
  if (!link.ok()) return link.status().with_context("--link-of " + name);
  auto node = static_cast<size_t>(at - known.begin());
  if (node >= static_cast<size_t>(layout.agents)) {
    const size_t shard = node - static_cast<size_t>(layout.agents);
    if (places[shard] != kOwn)
      return error("H200",
                   "--link-of " + name + ": it shares the node and link of " + places[shard],
                   "--link-of " + places[shard] + text.substr(equals));
    node = static_cast<size_t>(layout.shard_nodes[shard]);
  }
  layout.links[node] = link.value();
  return {};
}

}  // namespace

Result<ClusterLayout> make_layout(const RunOptions& options, int agents) {
  GRADBUS_RETURN_IF_ERROR(check_use(options));
  ClusterLayout layout;
  layout.agents = agents;
  Result<std::vector<std::string>> places =
      wanted_places(options.shards_on, agents, shard_count(options));
  if (!places.ok()) return places.status();
  int nodes = agents;
  const std::vector<std::string> names = agent_names(agents);
  for (const std::string& place : places.value()) {
    const auto beside = std::ranges::find(names, place);
    layout.shard_nodes.push_back(beside == names.end() ? nodes++
                                                       : static_cast<int>(beside - names.begin()));
  }
  if (options.link.empty()) return layout;
  const Result<LinkSpec> link = parse_link(options.link);
  if (!link.ok()) return link.status();
  layout.links.assign(static_cast<size_t>(nodes), link.value());
  for (const std::string& text : options.link_of)
    GRADBUS_RETURN_IF_ERROR(set_link(text, places.value(), layout));
  return layout;
}

}  // namespace gradbus
