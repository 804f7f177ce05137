// Times of modes, worked by hand from the formulas in mode_times.h and network.h.
#include "server/scheduling/mode_times.h"

#include <gtest/gtest.h>

#include "server/scheduling/schedule.h"
#include "tests/unit/server/scheduling/workloads.h"

namespace gradbus::scheduling {
namespace {

using test::make_workload;
using test::two_nodes;

// An all-reduce of 1,000 bytes takes 2 * 10 + 1,000 * 0.08 = 100 us.
const Cluster kPair = two_nodes(10, 80);
// It computes for 450 us.
const Workload kLayers = make_workload({{1000, 50, 100}, {1000, 50, 100}, {1000, 50, 100}});

SyncMode mode_of(std::string_view text) {
  Result<SyncMode> mode = parse_mode(text);
  EXPECT_TRUE(mode.ok()) << mode.status().message();
  return mode.take();
}

double step_us(std::string_view text, const Workload& workload, Cluster cluster,
               uint32_t shards = 0) {
  const SyncMode mode = mode_of(text);
  const Status status = apply_mode(mode, shards, cluster);
  EXPECT_TRUE(status.ok()) << status.message();
  Result<Plan> plan = make_plan("wfbp", workload, cluster, {});
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return step_times(workload, plan.value(), cluster, mode).iteration_us;
}

TEST(ModeTimes, SyncIsSimulated) { EXPECT_DOUBLE_EQ(step_us("sync", kLayers, kPair), 550); }

// The link works for 300 us of 450; with layers of 2,000 bytes for 3 * 180 = 540.
TEST(ModeTimes, ADelayHidesCommunicationUpToTheTimeOfTheLink) {
  EXPECT_DOUBLE_EQ(step_us("delayed:k=1", kLayers, kPair), 450);
  const Workload large = make_workload({{2000, 50, 100}, {2000, 50, 100}, {2000, 50, 100}});
  EXPECT_DOUBLE_EQ(step_us("delayed:k=1", large, kPair), 540);
  EXPECT_DOUBLE_EQ(step_us("delayed:k=4", large, kPair), 540);
}

// Encoding takes 300 us, 1,500 bytes 20 + 120, decoding 100: 540 in all.
TEST(ModeTimes, ACodedOperationNeedsItsTimeWithinTheDelay) {
  Cluster cluster = kPair;
  cluster.codec = {.name = "half", .ratio = 0.5, .encode = {300, 0}, .decode = {100, 0}};
  Plan plan;
  plan.operations = {{.pieces = {{0, 0, 1000}, {1, 0, 1000}, {2, 0, 1000}}, .compressed = true}};
  const auto us = [&](std::string_view mode) {
    return step_times(kLayers, plan, cluster, mode_of(mode)).iteration_us;
  };
  EXPECT_DOUBLE_EQ(us("delayed:k=1"), 540);
  EXPECT_DOUBLE_EQ(us("delayed:k=2"), 450);
  cluster.codec.on_compute = true;
  EXPECT_DOUBLE_EQ(us("delayed:k=1"), 450 + 400);
}

// All parameters take 20 + 240 = 260 us.
TEST(ModeTimes, LocalStepsShareOneExchange) {
  EXPECT_DOUBLE_EQ(step_us("localsgd:H=4", kLayers, kPair), 450 + 260.0 / 4);
  EXPECT_DOUBLE_EQ(step_us("diloco:H=10", kLayers, kPair), 450 + 26);
}

// Half of 30,000 bytes take 20 + 1,200 us, of which two steps hide 900.
TEST(ModeTimes, StepsHideAFragment) {
  const Workload large = make_workload({{10000, 50, 100}, {10000, 50, 100}, {10000, 50, 100}});
  EXPECT_DOUBLE_EQ(step_us("diloco:H=8,fragments=2,overlap=2", large, kPair),
                   450 + 2.0 / 8 * (1220 - 900));
  EXPECT_DOUBLE_EQ(step_us("diloco:H=8,fragments=2,overlap=3", large, kPair), 450);
}

// Two shards for two nodes are a ring of two. One shard has both nodes' bytes: 20 + 160 us each,
// 250-430, 430-610, 610-790. Two replicas double startups and bytes: 40 + 160, to 850.
TEST(ModeTimes, ShardsHaveAnIncast) {
  EXPECT_DOUBLE_EQ(step_us("ps:sync", kLayers, kPair, 2), 550);
  EXPECT_DOUBLE_EQ(step_us("ps:sync", kLayers, kPair, 1), 790);
  EXPECT_DOUBLE_EQ(step_us("ps:async", kLayers, kPair, 1), 790);
  EXPECT_DOUBLE_EQ(step_us("ps:async", kLayers, kPair, 2), 850);
  EXPECT_DOUBLE_EQ(step_us("ps:async,replicas=1", kLayers, kPair, 2), 550);
}

TEST(ModeTimes, AHalfOfAnExchangeWithShardsIsOneWay) {
  const Network network{.nodes = 8, .alpha_us = 10, .beta_ns = 2, .gamma_ns = 1, .shards = 4};
  const auto us = [&](CollectiveKind kind) { return collective_us(kind, 1000, network); };
  EXPECT_DOUBLE_EQ(us(CollectiveKind::kAllReduce), 20 + 2 * 3);
  EXPECT_DOUBLE_EQ(us(CollectiveKind::kReduceScatter), 10 + 2 * 3);
  EXPECT_DOUBLE_EQ(us(CollectiveKind::kAllGather), 10 + 2 * 2);
}

TEST(ModeTimes, WhatHasNoFormulaIsRefused) {
  Cluster coded = kPair;
  coded.codec.name = "half";
  Cluster alone = kPair;
  alone.network.nodes = 1;
  const auto refusal = [](std::string_view mode, uint32_t shards, Cluster cluster) {
    const Status status = apply_mode(mode_of(mode), shards, cluster);
    EXPECT_FALSE(status.ok()) << mode;
    return status.message();
  };
  EXPECT_NE(refusal("gossip", 0, kPair).find("in the background"), std::string::npos);
  EXPECT_NE(refusal("averaging:every=8", 0, kPair).find("in the background"), std::string::npos);
  EXPECT_NE(refusal("sync", 2, kPair).find("uses no shards"), std::string::npos);
  EXPECT_NE(refusal("ps:sync", 0, kPair).find("--shards 4"), std::string::npos);
  EXPECT_NE(refusal("ps:sync", 2, alone).find("two nodes"), std::string::npos);
  EXPECT_NE(refusal("ps:sync,replicas=2", 1, kPair).find("fewer shards"), std::string::npos);
  EXPECT_NE(refusal("ps:async", 2, coded).find("no formula"), std::string::npos);
  EXPECT_NE(refusal("ps:async,optimizer=lamb", 2, kPair).find("lamb"), std::string::npos);
}

}  // namespace
}  // namespace gradbus::scheduling
