// Nodes that went away: remembered unless they said goodbye, until they return or are forgotten.
#include <gmock/gmock.h>

#include "tests/unit/server/coordinator/cluster.h"

namespace gradbus {
namespace {

using test::Cluster;
using testing::HasSubstr;

void say_goodbye(Cluster& cluster, uint64_t agent) {
  v1::AgentMessage message;
  message.mutable_goodbye();
  cluster.send(agent, message);
  cluster.beating.erase(agent);
}

v1::Error forget(Cluster& cluster, const std::string& node) {
  v1::ForgetNodeRequest request;
  request.set_node(node);
  return cluster.coordinator.forget_node(request, "test", cluster.now).error();
}

TEST(LostNodes, ADroppedAgentIsRememberedUntilItReturns) {
  Cluster cluster;
  cluster.hello(1, "node-a");
  cluster.drop(1);
  cluster.advance(3 * kSecond);
  const auto status = cluster.status();
  ASSERT_EQ(status.lost_nodes_size(), 1);
  EXPECT_EQ(status.lost_nodes(0).name(), "node-a");
  EXPECT_EQ(status.lost_nodes(0).pid(), 1001u);
  EXPECT_EQ(status.lost_nodes(0).lost_ms(), 3000u);
  EXPECT_THAT(status.lost_nodes(0).why(), HasSubstr("closed its connection"));
  cluster.hello(2, "node-a");
  EXPECT_EQ(cluster.status().lost_nodes_size(), 0);
}

TEST(LostNodes, SoIsASilentShard) {
  Cluster cluster;
  cluster.shard(1, "shard-a");
  cluster.beating.erase(1);
  cluster.advance(5 * kSecond);
  ASSERT_EQ(cluster.status().lost_nodes_size(), 1);
  EXPECT_TRUE(cluster.status().lost_nodes(0).shard());
  EXPECT_THAT(cluster.status().lost_nodes(0).why(), HasSubstr("silent for"));
}

TEST(LostNodes, AGoodbyeIsNoLossAndClosesTheStream) {
  Cluster cluster;
  cluster.hello(1, "node-a");
  say_goodbye(cluster, 1);
  EXPECT_TRUE(cluster.closed.contains(1));
  EXPECT_EQ(cluster.status().agents_size(), 0);
  EXPECT_EQ(cluster.status().lost_nodes_size(), 0);
  cluster.drop(1);
  EXPECT_EQ(cluster.status().lost_nodes_size(), 0);
}

TEST(LostNodes, AnAdministratorForgetsOne) {
  Cluster cluster;
  cluster.hello(1, "node-a");
  cluster.drop(1);
  EXPECT_THAT(forget(cluster, "node-b").message(), HasSubstr("GB-C505"));
  EXPECT_EQ(cluster.status().lost_nodes_size(), 1);
  EXPECT_EQ(forget(cluster, "node-a").message(), "");
  EXPECT_EQ(cluster.status().lost_nodes_size(), 0);
}

TEST(LostNodes, AreBoundedByNumberAndAge) {
  LostNodes nodes;
  for (size_t i = 0; i < kLostNodesMax + 10; ++i)
    nodes.add({"n" + std::to_string(i), i, false, "", Nanos(i) * kSecond});
  EXPECT_EQ(nodes.list().size(), kLostNodesMax);
  EXPECT_EQ(nodes.list().front().name, "n10");
  nodes.forget_old(kLostNodeKept + 12 * kSecond);
  EXPECT_EQ(nodes.list().front().name, "n12");
}

// gradbus.elastic: the same processes join again. Others are refused, as their start is a new one.
TEST(LostNodes, ADrainedNodeTakesTheRanksOfALostJobBack) {
  Cluster cluster;
  cluster.hello(1, "node-a");
  cluster.hello(2, "node-b");
  cluster.join(1, "job", 0, 2);
  cluster.join(2, "job", 1, 2);
  v1::DrainNodeRequest request;
  request.set_node("node-a");
  EXPECT_EQ(cluster.coordinator.drain_node(request, "test", cluster.now).error().code(), 0u);
  cluster.drop(2);
  cluster.hello(3, "node-b");
  cluster.inbox.clear();
  cluster.join(1, "another", 0, 2);
  EXPECT_THAT(test::error_of(cluster.inbox[1].at(0)), HasSubstr("GB-C507"));
  cluster.inbox.clear();
  cluster.join(1, "job", 0, 2);
  cluster.join(3, "job", 1, 2);
  ASSERT_FALSE(cluster.inbox[1].empty());
  EXPECT_TRUE(cluster.inbox[1].at(0).has_job_started()) << cluster.inbox[1].at(0).DebugString();
}

}  // namespace
}  // namespace gradbus
