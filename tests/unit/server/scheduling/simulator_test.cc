// The simulator against steps that were worked by hand.
#include "server/scheduling/simulator.h"

#include <gmock/gmock.h>

#include "server/scheduling/schedule.h"
#include "tests/unit/server/scheduling/workloads.h"

namespace gradbus::scheduling {
namespace {

using test::make_workload;
using test::two_nodes;

// An all-reduce of 1,000 bytes takes 2 * 10 + 1,000 * 0.08 = 100 us.
const Cluster kCluster = two_nodes(10, 80);

// Three layers of 1,000 bytes: forward 50 us each, backward 100 us each.
const Workload kThree = make_workload({{1000, 50, 100}, {1000, 50, 100}, {1000, 50, 100}});

Plan planned(std::string_view name, const Workload& workload, const Cluster& cluster,
             const ScheduleOptions& options = {}) {
  Result<Plan> plan = make_plan(name, workload, cluster, options);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.take();
}

// forward 150 | backward to 250, 350, 450 | all-reduces 250-350, 350-450, 450-550.
TEST(Simulator, WfbpHidesAllButTheLastExchange) {
  const StepTimes times = simulate(kThree, planned("wfbp", kThree, kCluster), kCluster);
  EXPECT_DOUBLE_EQ(times.iteration_us, 550);
  EXPECT_DOUBLE_EQ(times.compute_us, 450);
  EXPECT_DOUBLE_EQ(times.exposed_us, 100);
  EXPECT_DOUBLE_EQ(times.link_us, 300);
  EXPECT_DOUBLE_EQ(times.efficiency(), 450.0 / 550);
}

// One group: an all-reduce of 3,000 bytes takes 20 + 240 = 260, all after the backward pass.
TEST(Simulator, OneGroupHidesNothing) {
  ScheduleOptions options;
  options.groups = 1;
  const StepTimes times =
      simulate(kThree, planned("mergecomp", kThree, kCluster, options), kCluster);
  EXPECT_DOUBLE_EQ(times.iteration_us, 450 + 260);
  EXPECT_DOUBLE_EQ(times.exposed_us, 260);
}

// Halves take 10 + 40 = 50. Reduce-scatters: 250-300, 350-400, 450-500. All-gathers: 500-550,
// 550-600, 600-650. Forward: 550-600, 600-650, 650-700. So a step is 700 - 150 = 550 ... until the
// next backward begins, 150 after the first forward: 450 of computing and 100 that nothing hides.
TEST(Simulator, DearHidesGathersBehindTheForwardPass) {
  ScheduleOptions options;
  options.nearby_layers = 1;
  const StepTimes times = simulate(kThree, planned("dear", kThree, kCluster, options), kCluster);
  EXPECT_DOUBLE_EQ(times.iteration_us, 550);
  EXPECT_DOUBLE_EQ(times.link_us, 300);
}

// With layers of 2,000 bytes halves take 10 + 80 = 90, all-reduces 180. wfbp: 250-430, -610, -790.
// dear: scatters 250-340, 350-440, 450-540; gathers -630, -720, -810; forward 630-680, 720-770,
// 810-860: a step is 860 - 150 = 710, against 790.
TEST(Simulator, DearBeatsWfbpWhenTheLinkIsTheBottleneck) {
  const Workload workload = make_workload({{2000, 50, 100}, {2000, 50, 100}, {2000, 50, 100}});
  ScheduleOptions options;
  options.nearby_layers = 1;
  EXPECT_DOUBLE_EQ(simulate(workload, planned("wfbp", workload, kCluster), kCluster).iteration_us,
                   790);
  EXPECT_DOUBLE_EQ(
      simulate(workload, planned("dear", workload, kCluster, options), kCluster).iteration_us, 710);
}

// Two operations that are ready at 110 and 120 after the step's start: the large one takes 1,000.
// The urgent one of 100 us interrupts it after its second chunk of 100 us, or waits for it.
TEST(Simulator, AnUrgentOperationOvertakesAtAChunk) {
  const Workload workload = make_workload({{1000, 50, 150}, {10'000, 50, 10}});
  Plan plan;
  plan.steps_per_layer = true;
  plan.operations.resize(2);
  plan.operations[0].pieces = {{0, 0, 1000}};
  plan.operations[0].priority = 0;
  plan.operations[1].pieces = {{1, 0, 10'000}};
  plan.operations[1].priority = 1;
  const Cluster cluster = two_nodes(0, 100);
  ASSERT_TRUE(validate(workload, plan).ok());
  // Backward: 100-110, 110-260. The large one: 110-1110. Then the urgent one: -1210. Forward 0 may
  // begin at 1210; layer 1 is there since 1110. A step is 1210.
  EXPECT_DOUBLE_EQ(simulate(workload, plan, cluster).iteration_us, 1210);
  // Chunks end at 210, 310: the urgent one goes 310-410, the large one goes on until 1210. Forward
  // 0: 410-460, forward 1: 1210-1260. A step is as long as the link is busy, and 60 + 40 more.
  plan.chunk_bytes = 1000;
  const StepTimes times = simulate(workload, plan, cluster);
  EXPECT_DOUBLE_EQ(times.iteration_us, 1210 - 50);
}

// A budget of one partition lets the first layer overtake; a budget of all keeps the order.
TEST(Simulator, ABudgetLimitsWhatCannotBeOvertaken) {
  const Workload workload = make_workload({{8192, 10, 100}, {81'920, 400, 10}});
  const Cluster cluster = two_nodes(0, 10);
  ScheduleOptions options;
  options.partition_bytes = 8192;
  options.budget_bytes = 8192;
  const StepTimes small =
      simulate(workload, planned("bytescheduler", workload, cluster, options), cluster);
  EXPECT_EQ(small.in_flight_bytes_max, 8192u);
  options.budget_bytes = 1 << 20;
  const StepTimes large =
      simulate(workload, planned("bytescheduler", workload, cluster, options), cluster);
  EXPECT_EQ(large.in_flight_bytes_max, 81'920u);  // the first has gone when the last one comes
  EXPECT_LT(small.iteration_us, large.iteration_us);
}

// Encode 30, exchange 2 * 10 + 100 * 0.08 = 28, decode 20. One layer: 50 + 100 + 78.
TEST(Simulator, ACodecCodesOnItsStream) {
  const Workload workload = make_workload({{1000, 50, 100}});
  Cluster cluster = kCluster;
  cluster.codec = {.name = "test",
                   .ratio = 0.1,
                   .encode = {30, 0},
                   .decode = {20, 0},
                   .carrier = Carrier::kAllReduce,
                   .on_compute = false};
  const Plan plan = planned("wfbp", workload, cluster);
  EXPECT_DOUBLE_EQ(simulate(workload, plan, cluster).iteration_us, 228);
  EXPECT_DOUBLE_EQ(simulate(workload, plan, cluster).exposed_us, 78);
  cluster.codec.on_compute = true;
  EXPECT_DOUBLE_EQ(simulate(workload, plan, cluster).iteration_us, 228);
  EXPECT_DOUBLE_EQ(simulate(workload, plan, cluster).coding_us, 50);
  EXPECT_DOUBLE_EQ(simulate(workload, plan, cluster).exposed_us, 28);
}

// On the compute stream, encoding delays the layers before: three layers, 3 * 30 more. Backward
// ends at 450 + 60, the last encoding at 540; exchanges of 28 us hide but for the last one, which
// ends at 568; decodings hide behind nothing: 540-560, 560-580, 580-600.
TEST(Simulator, CodingOnTheComputeStreamDelaysComputing) {
  Cluster cluster = kCluster;
  cluster.codec = {.name = "test",
                   .ratio = 0.1,
                   .encode = {30, 0},
                   .decode = {20, 0},
                   .carrier = Carrier::kAllReduce,
                   .on_compute = true};
  const StepTimes times = simulate(kThree, planned("wfbp", kThree, cluster), cluster);
  EXPECT_DOUBLE_EQ(times.iteration_us, 600);
  EXPECT_DOUBLE_EQ(times.coding_us, 150);
  EXPECT_DOUBLE_EQ(times.exposed_us, 0);
}

TEST(Simulator, OneNodeOnlyComputes) {
  Cluster cluster;
  for (const Schedule& schedule : schedules()) {
    const StepTimes times = simulate(kThree, planned(schedule.name, kThree, cluster), cluster);
    EXPECT_DOUBLE_EQ(times.iteration_us, 450) << schedule.name;
  }
}

}  // namespace
}  // namespace gradbus::scheduling
