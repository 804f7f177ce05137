// --shards-on and --link-of: which daemon is behind which link, and every mistake named.
#include "cli/cluster/cluster_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradbus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

RunOptions options_of(const std::string& shards, const std::string& shards_on,
                      const std::vector<std::string>& link_of = {}) {
  RunOptions options;
  options.shards = shards;
  options.shards_on = shards_on;
  options.link = "1gbit,200us";
  options.link_of = link_of;
  return options;
}

ClusterLayout layout_of(const RunOptions& options, int agents) {
  const Result<ClusterLayout> layout = make_layout(options, agents);
  EXPECT_TRUE(layout.ok()) << layout.status().message();
  return layout.ok() ? layout.value() : ClusterLayout{};
}

std::string layout_problem(const RunOptions& options, int agents = 2) {
  return std::string(make_layout(options, agents).status().message());
}

TEST(ClusterLayout, WithoutLinksThereIsNoNetwork) {
  RunOptions options;
  options.shards = "2";
  const ClusterLayout layout = layout_of(options, 3);
  EXPECT_EQ(layout.agents, 3);
  EXPECT_THAT(layout.links, IsEmpty());
  EXPECT_THAT(layout.shard_nodes, ElementsAre(3, 4));
}

TEST(ClusterLayout, ShardsAreOnTheirOwnLinksOrBesideAgents) {
  EXPECT_THAT(layout_of(options_of("2", ""), 2).shard_nodes, ElementsAre(2, 3));
  EXPECT_THAT(layout_of(options_of("2", "own"), 2).shard_nodes, ElementsAre(2, 3));
  EXPECT_THAT(layout_of(options_of("3", "agents"), 2).shard_nodes, ElementsAre(0, 1, 0));
  const ClusterLayout mixed = layout_of(options_of("4", "own,agent-1,own,agent-1"), 2);
  EXPECT_THAT(mixed.shard_nodes, ElementsAre(2, 1, 3, 1));
  EXPECT_EQ(mixed.links.size(), 4u);
}

TEST(ClusterLayout, OneNodeMayHaveAnotherLink) {
  const ClusterLayout layout =
      layout_of(options_of("2", "agent-0,own", {"agent-1=10gbit", "shard-1=500mbit,1ms"}), 2);
  ASSERT_EQ(layout.links.size(), 3u);
  EXPECT_EQ(layout.links[0].bits_per_second, 1'000'000'000u);
  EXPECT_EQ(layout.links[0].delay, kMillisecond / 5);
  EXPECT_EQ(layout.links[1].bits_per_second, 10'000'000'000u);
  EXPECT_EQ(layout.links[1].delay, 0);
  EXPECT_EQ(layout.links[2].bits_per_second, 500'000'000u);
  EXPECT_EQ(layout.links[2].delay, kMillisecond);
}

TEST(ClusterLayout, MistakesAreNamed) {
  EXPECT_THAT(layout_problem(options_of("2", "own,agnet-1")), HasSubstr("did you mean: agent-1"));
  EXPECT_THAT(layout_problem(options_of("2", "agnets")), HasSubstr("did you mean: agents"));
  EXPECT_THAT(layout_problem(options_of("2", "own,agent-2")), HasSubstr("own, agent-0, agent-1"));
  EXPECT_THAT(layout_problem(options_of("2", "agent-0")), HasSubstr("names 1 place for 2 shards"));
  EXPECT_THAT(layout_problem(options_of("0", "agents")), HasSubstr("add --shards N"));
  EXPECT_THAT(layout_problem(options_of("1", "", {"shrad-0=1gbit"})),
              HasSubstr("did you mean: shard-0"));
  EXPECT_THAT(layout_problem(options_of("1", "", {"shard-0"})), HasSubstr("says no rate"));
  EXPECT_THAT(layout_problem(options_of("1", "", {"shard-0=fast"})), HasSubstr("rate is \"fast\""));
  EXPECT_THAT(layout_problem(options_of("1", "agents", {"shard-0=1gbit"})),
              HasSubstr("--link-of agent-0=1gbit"));
  RunOptions options = options_of("2", "agents");
  options.link.clear();
  EXPECT_THAT(layout_problem(options), HasSubstr("--shards-on is for daemons on links"));
  options.shards_on.clear();
  options.link_of = {"agent-0=1gbit"};
  EXPECT_THAT(layout_problem(options), HasSubstr("--link-of is for daemons on links"));
}

}  // namespace
}  // namespace gradbus
