// Each planner by hand, and what all of them promise for made-up models and clusters.
#include "server/scheduling/schedule.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "tests/unit/server/scheduling/workloads.h"

namespace gradbus::scheduling {
namespace {

using test::make_workload;
using test::two_nodes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Layers = std::vector<std::vector<uint32_t>>;

Layers layers_of(const Plan& plan) {
  Layers groups;
  for (const Operation& operation : plan.operations) {
    groups.emplace_back();
    for (const Piece& piece : operation.pieces) groups.back().push_back(piece.layer);
  }
  return groups;
}

Layers planned_layers(std::string_view name, const Workload& workload, const Cluster& cluster,
                      const ScheduleOptions& options = {}) {
  return layers_of(make_plan(name, workload, cluster, options).value());
}

// Five layers; layer 2 has no parameters. An operation takes 2 * 10 us + 0.1 us for 1,000 bytes.
const Workload kFive =
    make_workload({{4000, 10, 100}, {4000, 10, 5}, {0, 10, 5}, {8000, 10, 5}, {4000, 10, 40}});
const Cluster kCluster = two_nodes(10, 0.1);

TEST(Schedules, WfbpSendsEachLayer) {
  EXPECT_EQ(planned_layers("wfbp", kFive, kCluster), (Layers{{4}, {3}, {1}, {0}}));
}

// Expect: a bucket is closed when it has reached its size; the first one is smaller.
TEST(Schedules, DdpFillsBucketsInTheOrderSeen) {
  ScheduleOptions options;
  options.first_bucket_bytes = 4000;
  options.bucket_bytes = 9000;
  EXPECT_EQ(planned_layers("ddp", kFive, kCluster, options), (Layers{{4}, {3, 1}, {0}}));
  Workload other = kFive;
  other.backward_order = {0, 1, 2, 3, 4};
  EXPECT_EQ(planned_layers("ddp", other, kCluster, options), (Layers{{0}, {1, 3}, {4}}));
}

// Ready at 40, 45, 55, 155. The first goes 40-60; by then 3 and 1 wait, 60-82; the last 155.
TEST(Schedules, FusionSendsWhatWaitsTogether) {
  EXPECT_EQ(planned_layers("fusion", kFive, kCluster), (Layers{{4}, {3, 1}, {0}}));
  ScheduleOptions options;
  options.fusion_bytes = 11'999;
  EXPECT_EQ(planned_layers("fusion", kFive, kCluster, options), (Layers{{4}, {3}, {1}, {0}}));
}

// A startup is 20. Layer 3 is ready at 45 < 40 + 20: merged, so the group starts at 45. Layer 1 is
// ready at 55 < 45 + 20: merged. Layer 0 is ready at 155: not.
TEST(Schedules, MgWfbpMergesWhenAStartupPays) {
  EXPECT_EQ(planned_layers("mg-wfbp", kFive, kCluster), (Layers{{4, 3, 1}, {0}}));
  EXPECT_EQ(planned_layers("mg-wfbp", kFive, two_nodes(3, 0.1)), (Layers{{4, 3}, {1}, {0}}));
  EXPECT_EQ(planned_layers("mg-wfbp", kFive, two_nodes(0, 0.1)), (Layers{{4}, {3}, {1}, {0}}));
}

// 8,192 and 20,000 bytes in partitions of at most 8,192: one, and three of 6,667, 6,667, 6,666.
TEST(Schedules, ByteschedulerCutsEqualParts) {
  const Workload workload = make_workload({{20'000, 1, 1}, {8192, 1, 1}});
  ScheduleOptions options;
  options.partition_bytes = options.budget_bytes = 8192;
  const Plan plan = make_plan("bytescheduler", workload, kCluster, options).value();
  std::vector<uint64_t> sizes;
  std::vector<int64_t> priorities;
  for (const Operation& operation : plan.operations) {
    sizes.push_back(operation.bytes());
    priorities.push_back(operation.priority);
  }
  EXPECT_THAT(sizes, ElementsAre(8192, 6667, 6667, 6666));
  EXPECT_THAT(priorities, ElementsAre(1, 0, 0, 0));
  EXPECT_TRUE(plan.steps_per_layer);
}

// In forward order, below 9,000 bytes: {0, 1}, {3}, {4}. By number: {0, 1, 3}, {4}.
TEST(Schedules, DearGroupsByBytesOrByNeighbours) {
  ScheduleOptions options;
  options.dear_bytes = 9000;
  EXPECT_EQ(planned_layers("dear", kFive, kCluster, options),
            (Layers{{4}, {3}, {0, 1}, {4}, {3}, {0, 1}}));
  options.nearby_layers = 3;
  EXPECT_EQ(planned_layers("dear", kFive, kCluster, options),
            (Layers{{4}, {0, 1, 3}, {4}, {0, 1, 3}}));
}

TEST(Schedules, MergecompTakesAsManyGroupsAsAskedFor) {
  for (uint32_t groups = 1; groups <= 4; ++groups) {
    ScheduleOptions options;
    options.groups = groups;
    EXPECT_EQ(planned_layers("mergecomp", kFive, kCluster, options).size(), groups);
  }
}

TEST(Schedules, AutoSaysWhatItChose) {
  const Plan plan = make_plan("auto", kFive, kCluster, {}).value();
  EXPECT_THAT(plan.why, HasSubstr(" operation"));
}

struct Refused {
  const char* schedule;
  const char* what;
  void (*change)(Cluster&, ScheduleOptions&);
};

constexpr Refused kRefused[] = {
    {"dera", "did you mean \"dear\"?", [](Cluster&, ScheduleOptions&) {}},
    {"bytescheduler", "a budget of 5000 bytes in flight",
     [](Cluster&, ScheduleOptions& options) { options.budget_bytes = 5000; }},
    {"bytescheduler", "too small to send",
     [](Cluster&, ScheduleOptions& options) { options.partition_bytes = 0; }},
    {"mergecomp", "5 groups need as many layers with parameters, but test has 4",
     [](Cluster&, ScheduleOptions& options) { options.groups = 5; }},
    {"ddp", "0 bytes", [](Cluster&, ScheduleOptions& options) { options.bucket_bytes = 0; }},
    {"fusion", "0 bytes", [](Cluster&, ScheduleOptions& options) { options.fusion_bytes = 0; }},
    {"dear", "0 bytes", [](Cluster&, ScheduleOptions& options) { options.dear_bytes = 0; }},
    {"dear", "dear cannot carry the codec topk",
     [](Cluster& cluster, ScheduleOptions&) { cluster.codec = parse_codec_cost("topk").take(); }},
};

TEST(Schedules, WhatIsImpossibleIsRefused) {
  for (const Refused& refused : kRefused) {
    Cluster cluster = kCluster;
    ScheduleOptions options;
    refused.change(cluster, options);
    const Result<Plan> plan = make_plan(refused.schedule, kFive, cluster, options);
    ASSERT_FALSE(plan.ok()) << refused.what;
    EXPECT_THAT(plan.status().message(), HasSubstr("GB-F100"));
    EXPECT_THAT(plan.status().message(), HasSubstr(refused.what));
    EXPECT_THAT(plan.status().message(), HasSubstr("| next: "));
  }
}

TEST(Schedules, TooManyPartitionsAreRefused) {
  const Workload huge = make_workload({{uint64_t{1} << 40, 1, 1}});
  ScheduleOptions options;
  options.partition_bytes = options.budget_bytes = 4096;
  EXPECT_THAT(make_plan("bytescheduler", huge, kCluster, options).status().message(),
              HasSubstr("more than 200000 operations"));
}

// ---- what all schedules promise

ScheduleOptions random_options(std::mt19937_64& random) {
  ScheduleOptions options;
  options.bucket_bytes = 1 + random() % (4 << 20);
  options.fusion_bytes = 1 + random() % (4 << 20);
  options.partition_bytes = kPartitionBytesMin + random() % (1 << 20);
  options.budget_bytes = options.partition_bytes * (1 + random() % 4);
  options.dear_bytes = 1 + random() % (4 << 20);
  options.nearby_layers = static_cast<uint32_t>(random() % 4);
  return options;
}

// The link cannot be busy longer than its operations take, nor shorter.
double link_total_us(const Plan& plan, const Cluster& cluster) {
  double total = 0;
  for (const Operation& operation : plan.operations)
    total += operation_times(operation, cluster).exchange_us;
  return total;
}

void expect_sound(const Workload& workload, const Cluster& cluster, const Plan& plan) {
  SCOPED_TRACE(plan.schedule);
  const Status valid = validate(workload, plan);
  ASSERT_TRUE(valid.ok()) << valid.message();
  const StepTimes times = simulate(workload, plan, cluster);
  const double rounding = 1e-6 * times.iteration_us;
  EXPECT_GE(times.iteration_us, workload.compute_us() - rounding);
  EXPECT_GE(times.iteration_us, link_total_us(plan, cluster) - rounding);
  if (plan.in_flight_bytes_max > 0) {
    EXPECT_LE(times.in_flight_bytes_max, plan.in_flight_bytes_max);
  }
  // Nothing starves: in a step that repeats, every operation is sent, and no more. (Steps that
  // alternate are averaged, their last one alone proves nothing.)
  std::map<uint32_t, double> sent;
  for (const Interval& interval : times.timeline)
    if (interval.stream == Stream::kLink)
      sent[interval.index] += interval.end_us - interval.begin_us;
  for (uint32_t i = 0; i < plan.operations.size(); ++i)
    EXPECT_NEAR(sent[i], operation_times(plan.operations[i], cluster).exchange_us, rounding);
}

TEST(Schedules, KeepTheirPromisesForRandomModels) {
  std::mt19937_64 random(22);
  for (int i = 0; i < 150; ++i) {
    SCOPED_TRACE(i);
    const Workload workload = test::random_workload(random, 1 + random() % 30);
    const Cluster cluster = test::random_cluster(random);
    const ScheduleOptions options = random_options(random);
    double best_us = 0;
    for (const Schedule& schedule : schedules()) {
      const Result<Plan> plan = make_plan(schedule.name, workload, cluster, options);
      if (!plan.ok()) {
        EXPECT_EQ(schedule.name, "dear") << plan.status().message();
        continue;
      }
      expect_sound(workload, cluster, plan.value());
      const double us = simulate(workload, plan.value(), cluster).iteration_us;
      if (schedule.name == "auto") {
        EXPECT_LE(us, best_us * (1 + 1e-6)) << plan.value().why;
      }
      best_us = best_us == 0 ? us : std::min(best_us, us);
    }
  }
}

// Expect: merging where a startup pays never loses against sending each layer.
TEST(Schedules, MgWfbpIsNeverSlowerThanWfbp) {
  std::mt19937_64 random(23);
  for (int i = 0; i < 300; ++i) {
    const Workload workload = test::random_workload(random, 1 + random() % 30);
    Cluster cluster = test::random_cluster(random);
    cluster.codec = {};
    cluster.network.algorithm = Algorithm::kRing;
    const auto us = [&](std::string_view name) {
      return simulate(workload, make_plan(name, workload, cluster, {}).value(), cluster)
          .iteration_us;
    };
    ASSERT_LE(us("mg-wfbp"), us("wfbp") * (1 + 1e-9)) << i;
  }
}

// The bound: 1,024 nodes on one core, well under a second for each plan.
TEST(Schedules, ThousandNodesTakeNoLonger) {
  Cluster cluster;
  cluster.network = {.nodes = 1024, .alpha_us = 20, .beta_ns = 0.8};
  const Workload workload = make_workload(std::vector<test::LayerRow>(60, {1 << 20, 100, 200}));
  for (const Schedule& schedule : schedules())
    EXPECT_TRUE(make_plan(schedule.name, workload, cluster, {}).ok()) << schedule.name;
}

}  // namespace
}  // namespace gradbus::scheduling
