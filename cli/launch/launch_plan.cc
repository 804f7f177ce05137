#include "cli/launch/launch_plan.h"

#include <sys/random.h>

#include <algorithm>
#include <numeric>

#include "common/errors.h"
#include "common/units.h"

namespace gradbus {
namespace {

Result<std::vector<Host>> given_hosts(const RunOptions& options) {
  if (!options.hosts.empty()) return parse_host_list(options.hosts);
  if (!options.hostfile.empty()) return read_hostfile(options.hostfile);
  return std::vector<Host>{};
}

int total_slots(const std::vector<Host>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0,
                         [](int sum, const Host& host) { return sum + host.slots; });
}

Status check_daemons(const LaunchPlan& plan, const RunOptions& options) {
  const auto is_local = [](const Host& host) { return host.local; };
  const bool all_local = std::all_of(plan.blocks.begin(), plan.blocks.end(), is_local);
  const bool none_local = std::none_of(plan.blocks.begin(), plan.blocks.end(), is_local);
  if (all_local || none_local) {
    if (none_local && options.embedded)
      return error("H200", "--embedded daemons serve this machine alone, but the hosts are others",
                   "start gradbus-agent on each host and leave out --embedded");
    return {};
  }
  if (options.embedded || plan.socket.empty())
    return error("A300", "a job of several hosts needs the agent of each, and none answers here",
                 "start gradbus-agent on every host, all with one --coordinator");
  return {};
}

Result<std::vector<Host>> choose_blocks(const RunOptions& options, const std::vector<Host>& hosts,
                                        int ranks) {
  if (!hosts.empty()) return hosts;
  const int agents = options.agents.empty() ? 1 : std::stoi(options.agents);
  if (agents > ranks)
    return error("H200", counted(agents, "agent") + " for " + counted(ranks, "rank"),
                 "use at most one agent per rank");
  std::vector<Host> blocks;
  for (const int slots : even_blocks(ranks, agents)) blocks.push_back({"localhost", slots, true});
  return blocks;
}

}  // namespace

int LaunchPlan::local_size(int block) const {
  return static_cast<int>(std::count_if(
      places.begin(), places.end(), [&](const RankPlace& place) { return place.block == block; }));
}

int LaunchPlan::ranks_on_this_machine() const {
  return static_cast<int>(std::count_if(places.begin(), places.end(), [&](const RankPlace& place) {
    return blocks[place.block].local;
  }));
}

Result<LaunchPlan> make_plan(const RunOptions& options, const std::string& socket) {
  Result<std::vector<Host>> hosts = given_hosts(options);
  if (!hosts.ok()) return hosts.status();
  const std::string ranks =
      options.ranks.empty() ? std::to_string(total_slots(hosts.value())) : options.ranks;
  Result<int> count = parse_rank_count(ranks, "the number of ranks");
  if (!count.ok()) return count.status();
  Result<std::vector<Host>> blocks = choose_blocks(options, hosts.value(), count.value());
  if (!blocks.ok()) return blocks.status();

  std::vector<int> slots;
  for (const Host& block : blocks.value()) slots.push_back(block.slots);
  Result<std::vector<RankPlace>> places = lay_out_ranks(count.value(), slots);
  if (!places.ok()) return places.status();

  LaunchPlan plan{options.job.empty() ? random_job_name() : options.job,
                  count.value(),
                  blocks.take(),
                  places.take(),
                  false,
                  socket};
  plan.blocks.resize(plan.places.back().block + 1);
  GRADBUS_RETURN_IF_ERROR(check_daemons(plan, options));
  const bool wants_own =
      options.embedded || !options.agents.empty() || shard_count(options) > 0 || socket.empty();
  plan.embedded = wants_own && plan.ranks_on_this_machine() > 0;
  if (plan.embedded) plan.socket.clear();
  return plan;
}

std::string random_job_name() {
  constexpr std::string_view kConsonants = "bdfgklmnprstvwz";
  constexpr std::string_view kVowels = "aeiou";
  unsigned char random[8] = {};
  // Cannot fail for so few bytes once the machine has booted.
  [[maybe_unused]] const ssize_t got = getrandom(random, sizeof(random), 0);
  std::string name = "run-";
  for (size_t i = 0; i < sizeof(random); i += 2) {
    name += kConsonants[random[i] % kConsonants.size()];
    name += kVowels[random[i + 1] % kVowels.size()];
  }
  return name;
}

}  // namespace gradbus
