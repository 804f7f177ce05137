// validate() refuses every plan that loses, repeats or invents a byte.
#include "server/scheduling/plan.h"

#include <gmock/gmock.h>

#include "tests/unit/server/scheduling/workloads.h"

namespace gradbus::scheduling {
namespace {

using ::testing::HasSubstr;

const Workload kTwoLayers = test::make_workload({{100, 1, 1}, {40, 1, 1}});

Operation operation(CollectiveKind kind, std::vector<Piece> pieces) {
  Operation made;
  made.kind = kind;
  made.pieces = std::move(pieces);
  return made;
}

Plan right_plan() {
  Plan plan;
  plan.schedule = "test";
  plan.operations = {operation(CollectiveKind::kAllReduce, {{1, 0, 40}, {0, 60, 40}}),
                     operation(CollectiveKind::kReduceScatter, {{0, 0, 60}}),
                     operation(CollectiveKind::kAllGather, {{0, 0, 60}})};
  plan.operations[2].start = Start::kBackwardEnd;
  plan.operations[2].after = 1;
  return plan;
}

TEST(PlanValidation, AcceptsEachByteOnce) {
  EXPECT_TRUE(validate(kTwoLayers, right_plan()).ok());
  Plan plan = right_plan();
  plan.in_flight_bytes_max = 80;
  EXPECT_TRUE(validate(kTwoLayers, plan).ok());
}

struct Break {
  const char* what;
  void (*change)(Plan&);
};

constexpr Break kBreaks[] = {
    {"exactly once",
     [](Plan& plan) {
       plan.operations[0].pieces[1] = {0, 60, 39};
     }},
    {"exactly once",
     [](Plan& plan) {
       plan.operations[0].pieces[1] = {0, 59, 40};
     }},
    {"exactly once",
     [](Plan& plan) {
       plan.operations[0].pieces.push_back({1, 0, 40});
     }},
    {"exactly once", [](Plan& plan) { plan.operations.pop_back(); }},
    {"does not have",
     [](Plan& plan) {
       plan.operations[0].pieces[1] = {0, 60, 41};
     }},
    {"does not have",
     [](Plan& plan) {
       plan.operations[0].pieces[1] = {0, UINT64_MAX, 40};
     }},
    {"does not have",
     [](Plan& plan) {
       plan.operations[0].pieces[0] = {1, 0, 0};
     }},
    {"does not exist", [](Plan& plan) { plan.operations[0].pieces[0].layer = 2; }},
    {"without bytes", [](Plan& plan) { plan.operations.push_back({}); }},
    {"follows nothing", [](Plan& plan) { plan.operations[2].after = 3; }},
    {"follows nothing", [](Plan& plan) { plan.operations[2].start = Start::kGradients; }},
    {"other bytes", [](Plan& plan) { plan.operations[2].after = 0; }},
    {"other bytes", [](Plan& plan) { plan.operations[2].pieces[0].bytes = 59; }},
    {"lets a reduction wait", [](Plan& plan) { plan.operations[1].after = 0; }},
    {"above its budget of 79", [](Plan& plan) { plan.in_flight_bytes_max = 79; }},
    {"both a budget",
     [](Plan& plan) {
       plan.in_flight_bytes_max = 80;
       plan.chunk_bytes = 8;
     }},
};

TEST(PlanValidation, RefusesEachBreak) {
  for (const Break& each : kBreaks) {
    Plan plan = right_plan();
    each.change(plan);
    const Status status = validate(kTwoLayers, plan);
    ASSERT_FALSE(status.ok()) << each.what;
    EXPECT_THAT(status.message(), HasSubstr(each.what));
    EXPECT_THAT(status.message(), HasSubstr("schedule test "));
  }
}

}  // namespace
}  // namespace gradbus::scheduling
