// Agents: Hello, names, leases.
#include <gmock/gmock.h>

#include "tests/unit/server/coordinator/cluster.h"

namespace gradbus {
namespace {

using test::Cluster;
using test::error_of;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

TEST(Agents, HelloIsWelcomed) {
  Cluster cluster;
  cluster.hello(1, "node-a");
  ASSERT_THAT(cluster.inbox[1], SizeIs(1));
  const auto& welcome = cluster.inbox[1][0].welcome();
  EXPECT_EQ(welcome.agent_id(), 1u);
  EXPECT_NE(welcome.incarnation(), 0u);
  EXPECT_EQ(welcome.heartbeat_ms(), 500u);
  EXPECT_EQ(welcome.lease_ms(), 1500u);
  const auto status = cluster.status();
  ASSERT_EQ(status.agents_size(), 1);
  EXPECT_EQ(status.agents(0).name(), "node-a");
  EXPECT_EQ(status.agents(0).address(), "10.0.0.1:1");
  EXPECT_EQ(status.agents(0).pid(), 1001u);
}

TEST(Agents, ARestartedCoordinatorHasAnotherIncarnation) {
  CoordinatorOptions options;
  Cluster first(options);
  options.seed = 1;
  Cluster second(options);
  first.hello(1, "a");
  second.hello(1, "a");
  EXPECT_NE(first.inbox[1][0].welcome().incarnation(), second.inbox[1][0].welcome().incarnation());
}

TEST(Agents, AnotherProtocolIsRefusedNamingBothVersions) {
  Cluster cluster;
  cluster.hello(1, "node-a", kControlProtocol + 1);
  const std::string text = error_of(cluster.inbox[1].at(0));
  EXPECT_THAT(text, StartsWith("GB-V801"));
  EXPECT_THAT(text, HasSubstr("9.9"));
  EXPECT_THAT(text, HasSubstr(GRADBUS_VERSION));
  EXPECT_TRUE(cluster.closed.contains(1));
  EXPECT_EQ(cluster.status().agents_size(), 0);
}

TEST(Agents, ANameIsTakenWhileItsAgentLives) {
  Cluster cluster;
  cluster.hello(1, "node-a");
  cluster.hello(2, "node-a");
  EXPECT_THAT(error_of(cluster.inbox[2].at(0)), StartsWith("GB-C502"));
  EXPECT_THAT(error_of(cluster.inbox[2].at(0)), HasSubstr("pid 1001"));
  EXPECT_TRUE(cluster.closed.contains(2));
  cluster.drop(1);
  cluster.hello(3, "node-a");
  EXPECT_TRUE(cluster.inbox[3].at(0).has_welcome());
}

TEST(Agents, BadHellosAreRefused) {
  const std::map<std::string, std::string> tcp = {{"tcp", "h:1"}};
  std::map<std::string, std::string> many;
  for (int i = 0; i < 17; ++i) many["t" + std::to_string(i)] = "h:1";
  struct Row {
    std::string name;
    std::map<std::string, std::string> addresses;
  };
  const Row rows[] = {{"", tcp},
                      {"a\nb", tcp},
                      {std::string(128, 'a'), tcp},
                      {"a", many},
                      {"a", {{"tcp", std::string(256, 'x')}}},
                      {"a", {{"", "h:1"}}}};
  Cluster cluster;
  uint64_t agent = 1;
  for (const Row& row : rows) {
    cluster.hello(agent, row.name, kControlProtocol, row.addresses);
    EXPECT_THAT(error_of(cluster.inbox[agent].at(0)), StartsWith("GB-D602")) << agent;
    EXPECT_TRUE(cluster.closed.contains(agent)) << agent;
    cluster.beating.erase(agent++);
  }
}

TEST(Agents, TheFirstMessageMustBeHello) {
  Cluster cluster;
  cluster.coordinator.connect(1, cluster.now);
  cluster.join(1, "job", 0, 1);
  EXPECT_THAT(error_of(cluster.inbox[1].at(0)), StartsWith("GB-D602"));
  EXPECT_TRUE(cluster.closed.contains(1));
}

TEST(Agents, ASecondHelloIsIgnoredAndCounted) {
  Cluster cluster;
  cluster.hello(1, "node-a");
  v1::AgentMessage again;
  again.mutable_hello()->set_name("node-z");
  again.mutable_hello()->set_protocol(kControlProtocol);
  cluster.send(1, again);
  EXPECT_EQ(cluster.coordinator.warnings(), 1u);
  EXPECT_EQ(cluster.status().agents(0).name(), "node-a");
}

TEST(Agents, SilenceEndsTheLeaseAndHeartbeatsKeepIt) {
  Cluster cluster;
  cluster.hello(1, "node-a");
  cluster.hello(2, "node-b");
  cluster.beating.erase(2);
  cluster.advance(1500 * kMillisecond);
  EXPECT_TRUE(cluster.closed.empty());
  cluster.advance(100 * kMillisecond);
  EXPECT_EQ(cluster.closed, std::set<uint64_t>{2});
  EXPECT_THAT(error_of(cluster.last(2)), HasSubstr("silent for 1.6 s"));
  EXPECT_EQ(cluster.status().agents_size(), 1);
}

TEST(Agents, TheirPathsAreShownAsTheySay) {
  Cluster cluster;
  cluster.hello(1, "node-a");
  v1::AgentMessage beat;
  v1::TransportCounters& transport = *beat.mutable_heartbeat()->mutable_transport();
  transport.set_switches(3);
  transport.add_paths()->set_name("rdma 10.0.0.1:1");
  transport.add_paths()->set_name("tcp 10.0.0.1:2");
  transport.mutable_paths(1)->set_links(4);
  cluster.send(1, beat);
  const v1::StatusReply status = cluster.status();
  EXPECT_EQ(status.agents(0).transport().switches(), 3u);
  ASSERT_EQ(status.agents(0).transport().paths_size(), 2);
  EXPECT_EQ(status.agents(0).transport().paths(1).links(), 4u);
  EXPECT_EQ(cluster.coordinator.warnings(), 0u);
  // What makes no sense is neither shown nor believed.
  transport.mutable_paths(0)->set_name("a\nb");
  cluster.send(1, beat);
  transport.mutable_paths(0)->set_name("a");
  while (transport.paths_size() <= 16) transport.add_paths()->set_name("x");
  cluster.send(1, beat);
  EXPECT_EQ(cluster.coordinator.warnings(), 2u);
  EXPECT_EQ(cluster.status().agents(0).transport().paths(0).name(), "rdma 10.0.0.1:1");
}

TEST(Agents, AStreamThatNeverSaysHelloIsClosed) {
  Cluster cluster;
  cluster.coordinator.connect(5, cluster.now);
  cluster.advance(1600 * kMillisecond);
  EXPECT_TRUE(cluster.closed.contains(5));
}

TEST(Agents, ALostAgentFailsItsJobsNamingRanksAgentAndSilence) {
  Cluster cluster;
  const uint64_t job = cluster.start_job("train", 4);
  cluster.beating.erase(2);
  cluster.advance(1600 * kMillisecond);
  ASSERT_THAT(cluster.inbox[1], SizeIs(1));
  const auto& failed = cluster.inbox[1][0].job_failed();
  EXPECT_EQ(failed.job_id(), job);
  EXPECT_EQ(failed.error().code(), uint32_t(Code::kPeerLost));
  EXPECT_THAT(failed.error().message(), StartsWith("GB-P104"));
  EXPECT_THAT(failed.error().message(), HasSubstr("ranks 1, 3"));
  EXPECT_THAT(failed.error().message(), HasSubstr("node-b (pid 1002) has been silent for 1.6 s"));
}

TEST(Agents, AClosedStreamFailsItsJobsAtOnceAndNoOthers) {
  Cluster cluster;
  cluster.start_job("train", 2);
  cluster.hello(3, "node-c");
  cluster.join(3, "other", 0, 1);
  cluster.clear();
  cluster.drop(2);
  EXPECT_THAT(error_of(cluster.inbox[1].at(0)), HasSubstr("rank 1: agent node-b"));
  EXPECT_TRUE(cluster.inbox[3].empty());
  EXPECT_EQ(cluster.status("other").jobs(0).state(), "running");
  EXPECT_EQ(cluster.status("train").jobs(0).ranks(1).state(), "lost");
}

TEST(Agents, NeverMoreThanTheMaximum) {
  Cluster cluster;
  for (uint64_t agent = 1; agent <= kAgentsMax; ++agent) {
    cluster.coordinator.connect(agent, cluster.now);
  }
  cluster.collect();
  EXPECT_TRUE(cluster.closed.empty());
  cluster.coordinator.connect(kAgentsMax + 1, cluster.now);
  cluster.collect();
  EXPECT_EQ(cluster.closed, std::set<uint64_t>{kAgentsMax + 1});
}

}  // namespace
}  // namespace gradbus
