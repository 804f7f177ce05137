// Paths between agents: who measures what and when, which figures are believed, who gets them.
#include "server/coordinator/paths.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "tests/unit/server/coordinator/cluster.h"

namespace gradbus {
namespace {

using test::Cluster;
using test::make_spec;
using testing::SizeIs;

void answer(Cluster& cluster, uint64_t agent, uint64_t probe, double alpha_us, double beta_ns) {
  v1::AgentMessage message;
  message.mutable_path_measured()->set_probe_id(probe);
  message.mutable_path_measured()->set_alpha_us(alpha_us);
  message.mutable_path_measured()->set_beta_ns(beta_ns);
  cluster.send(agent, message);
}

// The last that was asked is answered.
void answer(Cluster& cluster, double alpha_us, double beta_ns) {
  const auto probe = cluster.probes.back();
  answer(cluster, probe.first, probe.second.probe_id(), alpha_us, beta_ns);
}

void attach(Cluster& cluster, uint64_t agent) {
  cluster.hello(agent, "node-" + std::to_string(agent), kControlProtocol,
                {{"tcp", "10.0.0." + std::to_string(agent) + ":1"}});
}

// ---- who measures what

TEST(Paths, TheSecondAgentMeasuresItsPathToTheFirst) {
  Cluster cluster;
  attach(cluster, 1);
  EXPECT_THAT(cluster.probes, SizeIs(0));
  attach(cluster, 2);
  ASSERT_THAT(cluster.probes, SizeIs(1));
  EXPECT_EQ(cluster.probes[0].first, 2u);
  EXPECT_EQ(cluster.probes[0].second.address(), "10.0.0.1:1");
  answer(cluster, 31, 0.7);
  const auto status = cluster.status();
  ASSERT_EQ(status.paths_size(), 1);
  EXPECT_EQ(status.paths(0).agent(), "node-2");
  EXPECT_EQ(status.paths(0).peer(), "node-1");
  EXPECT_EQ(status.paths(0).alpha_us(), 31);
  EXPECT_EQ(status.paths(0).beta_ns(), 0.7);
  cluster.advance(60 * kSecond);
  EXPECT_THAT(cluster.probes, SizeIs(1)) << "once per pair";
  EXPECT_EQ(cluster.coordinator.warnings(), 0u);
}

TEST(Paths, OneAtATimeAndEachPairOnce) {
  Cluster cluster;
  for (uint64_t agent = 1; agent <= 9; ++agent) attach(cluster, agent);
  for (size_t asked = 1; asked <= 36; ++asked) {
    ASSERT_THAT(cluster.probes, SizeIs(asked));
    answer(cluster, 20, 1);
  }
  EXPECT_THAT(cluster.probes, SizeIs(36));
  EXPECT_EQ(cluster.status().paths_size(), 9 * 8 / 2);
}

TEST(Paths, ManyAgentsHaveABoundedNumberOfPathsEach) {
  Paths paths;
  for (uint64_t agent = 1; agent <= 100; ++agent) paths.attach(agent);
  size_t asked = 0;
  for (auto probe = paths.next({}, 0); probe; probe = paths.next({}, 0), ++asked) {
    v1::PathMeasured figures;
    figures.set_probe_id(probe->id);
    figures.set_alpha_us(1);
    figures.set_beta_ns(1);
    EXPECT_TRUE(paths.measured(probe->pair.first, figures, 0));
  }
  EXPECT_EQ(asked, 92 * 8 + 8 * 7 / 2u);
  EXPECT_THAT(paths.known(), SizeIs(asked));
}

TEST(Paths, AnAgentThatGoesTakesItsPathsAndItsProbeWithIt) {
  Cluster cluster;
  attach(cluster, 1);
  attach(cluster, 2);
  answer(cluster, 20, 1);
  attach(cluster, 3);
  cluster.drop(3);  // while it measures
  EXPECT_EQ(cluster.status().paths_size(), 1);
  cluster.drop(1);
  EXPECT_EQ(cluster.status().paths_size(), 0);
  attach(cluster, 4);
  ASSERT_THAT(cluster.probes, SizeIs(3));
  EXPECT_EQ(cluster.probes[2].first, 4u);
  EXPECT_EQ(cluster.probes[2].second.address(), "10.0.0.2:1");
}

TEST(Paths, AJobIsNotDisturbedAndWaitsForNothing) {
  Cluster cluster;
  attach(cluster, 1);
  const uint64_t job = cluster.start_job("j", 2);  // agent 2 attaches: measuring has begun
  ASSERT_THAT(cluster.probes, SizeIs(1));
  answer(cluster, 0, 0);  // it could not
  cluster.advance(2 * kProbeAgain);
  EXPECT_THAT(cluster.probes, SizeIs(1)) << "not while a job runs";
  EXPECT_NE(cluster.make_ready(job, 2, make_spec("t", 100)), 0u);
  for (uint32_t rank = 0; rank < 2; ++rank) cluster.left(Cluster::agent_of(rank), job, rank, true);
  cluster.advance(200 * kMillisecond);
  EXPECT_THAT(cluster.probes, SizeIs(2));
}

TEST(Paths, NoAnswerIsTriedAgainLater) {
  Cluster cluster;
  attach(cluster, 1);
  attach(cluster, 2);
  cluster.advance(kProbeDeadline + kProbeAgain - kSecond);
  EXPECT_THAT(cluster.probes, SizeIs(1));
  cluster.advance(2 * kSecond);
  ASSERT_THAT(cluster.probes, SizeIs(2));
  // The first answer comes late: too late to be one to the second question.
  answer(cluster, 2, cluster.probes[0].second.probe_id(), 99, 99);
  EXPECT_EQ(cluster.status().paths_size(), 0);
  answer(cluster, 20, 1);
  EXPECT_EQ(cluster.status().paths_size(), 1);
}

// ---- what is believed

TEST(Paths, NonsenseIsRefusedAndCounted) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::pair<double, double> rows[] = {{kNan, 1},      {20, kNan},  {0, 1},     {20, 0},
                                            {-1, 1},        {20, -1},    {20, 1e9},  {1e9, 1},
                                            {kInfinity, 1}, {20, 1e-30}, {1e-30, 1}, {kNan, kNan}};
  for (const auto& [alpha_us, beta_ns] : rows) {
    Cluster cluster;
    attach(cluster, 1);
    attach(cluster, 2);
    answer(cluster, alpha_us, beta_ns);
    EXPECT_EQ(cluster.coordinator.warnings(), 1u) << alpha_us << " " << beta_ns;
    EXPECT_EQ(cluster.status().paths_size(), 0);
  }
}

TEST(Paths, OnlyTheOneThatWasAskedMayAnswer) {
  Cluster cluster;
  attach(cluster, 1);
  attach(cluster, 2);
  const uint64_t probe = cluster.probes[0].second.probe_id();
  answer(cluster, 1, probe, 20, 1);
  answer(cluster, 2, probe + 1, 20, 1);
  answer(cluster, 2, 0, 20, 1);
  EXPECT_EQ(cluster.coordinator.warnings(), 3u);
  EXPECT_EQ(cluster.status().paths_size(), 0);
  answer(cluster, 2, probe, 20, 1);
  EXPECT_EQ(cluster.status().paths_size(), 1);
}

TEST(Paths, AReductionRateMustBeOne) {
  EXPECT_EQ(sane_reduce_ns(0.1), 0.1);
  for (const double nonsense : {0.0, -1.0, 1e9, std::nan("")})
    EXPECT_EQ(sane_reduce_ns(nonsense), 0);
}

TEST(Paths, TheWorstOfThoseWithinAJob) {
  Paths paths;
  for (uint64_t agent = 1; agent <= 3; ++agent) paths.attach(agent);
  // 2-1, 3-2, 3-1 in this order.
  for (const auto& [alpha_us, beta_ns] : {std::pair{10.0, 3.0}, {20.0, 1.0}, {500.0, 80.0}}) {
    v1::PathMeasured figures;
    figures.set_probe_id(paths.next({}, 0)->id);
    figures.set_alpha_us(alpha_us);
    figures.set_beta_ns(beta_ns);
    ASSERT_TRUE(paths.measured(figures.probe_id() == 1 ? 2 : 3, figures, 0));
  }
  std::map<uint64_t, AgentInfo> agents;
  agents[1].reduce_ns = 0.2;
  agents[2].reduce_ns = 0.3;
  PathFigures worst = paths.worst(agents);
  EXPECT_EQ(worst.alpha_us, 10);
  EXPECT_EQ(worst.beta_ns, 3);
  EXPECT_EQ(worst.gamma_ns, 0.3);
  agents[3];
  worst = paths.worst(agents);
  EXPECT_EQ(worst.alpha_us, 500);
  EXPECT_EQ(worst.beta_ns, 80);
  EXPECT_EQ(paths.worst({}).beta_ns, 0);
}

// ---- who gets it

uint64_t chunk_of(Cluster& cluster, uint64_t job, const std::string& name) {
  for (uint32_t rank = 0; rank < 2; ++rank)
    cluster.register_tensors(Cluster::agent_of(rank), job, rank, {make_spec(name, 100 << 20)});
  return cluster.last(1).tensors_ready().tensors(0).chunk_elements() * 4;
}

// A ring of two cuts 400 MiB into 100 and more chunks: the target is met up to its balance.
TEST(Paths, AJobIsPlannedByWhatIsKnownByThen) {
  Cluster cluster;
  attach(cluster, 1);
  attach(cluster, 2);
  const uint64_t job = cluster.start_job("j", 2);
  EXPECT_EQ(chunk_of(cluster, job, "before"), 256u << 10);
  answer(cluster, 200, 1);  // 4 * 200 us at 1 ns a byte: 800 kB
  EXPECT_EQ(chunk_of(cluster, job, "after"), 1u << 20);
  EXPECT_EQ(chunk_of(cluster, job, "before"), 256u << 10) << "what was planned stays";
  const uint64_t second = cluster.start_job("second", 2);
  EXPECT_EQ(chunk_of(cluster, second, "t"), 1u << 20);
}

}  // namespace
}  // namespace gradbus
