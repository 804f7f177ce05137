// Cuts against exhaustive search over all contiguous cuts of small models.
#include <gtest/gtest.h>

#include <limits>

#include "server/scheduling/cut_optimum.h"
#include "server/scheduling/cut_search.h"
#include "server/scheduling/schedules/planners.h"
#include "tests/unit/server/scheduling/workloads.h"

namespace gradbus::scheduling {
namespace {

using Build = Plan (*)(const Workload&, const Cluster&, const Groups&);

Cuts cuts_of_mask(uint32_t mask, uint32_t tensors) {
  Cuts cuts;
  for (uint32_t position = 1; position < tensors; ++position)
    if (mask >> (position - 1) & 1) cuts.push_back(position);
  return cuts;
}

// Over all cuts, or over those into `groups` groups.
double exhaustive_us(const Workload& workload, const Cluster& cluster, Build build,
                     uint32_t groups = 0) {
  const std::vector<uint32_t> order = gradient_order(workload);
  const auto tensors = static_cast<uint32_t>(order.size());
  double best = std::numeric_limits<double>::infinity();
  for (uint32_t mask = 0; mask < 1u << (tensors - 1); ++mask) {
    const Cuts cuts = cuts_of_mask(mask, tensors);
    if (groups > 0 && cuts.size() + 1 != groups) continue;
    const Plan plan = build(workload, cluster, cut(order, cuts));
    best = std::min(best, simulate(workload, plan, cluster).iteration_us);
  }
  return best;
}

double planned_us(const char* name, const Workload& workload, const Cluster& cluster,
                  const ScheduleOptions& options = {}) {
  const Result<Plan> plan = make_plan(name, workload, cluster, options);
  return simulate(workload, plan.value(), cluster).iteration_us;
}

// Layers of like sizes, so that cuts matter.
Workload small_workload(std::mt19937_64& random) {
  std::vector<test::LayerRow> rows;
  for (size_t i = 0, layers = 2 + random() % 7; i < layers; ++i)
    rows.push_back({4 + 4 * (random() % 50'000), static_cast<double>(random() % 100),
                    static_cast<double>(1 + random() % 200)});
  return test::make_workload(rows);
}

Cluster small_cluster(std::mt19937_64& random, const char* codec) {
  Cluster cluster = test::two_nodes(static_cast<double>(random() % 60), 1);
  cluster.codec = parse_codec_cost(codec).take();
  return cluster;
}

constexpr const char* kCodecs[] = {"none", "fp16", "topk:encode_us=60,decode_us=30",
                                   "topk:encode_us=60,decode_us=30,encode_ns=0.5,runs_on=compute"};

TEST(Cuts, AutoIsWithinAPercentOfExhaustiveSearch) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 120; ++i) {
    const char* const codec = kCodecs[i % 4];
    const Workload workload = small_workload(random);
    const Cluster cluster = small_cluster(random, codec);
    const double chosen = planned_us("auto", workload, cluster);
    EXPECT_LE(chosen, exhaustive_us(workload, cluster, all_reduce_groups) * 1.01)
        << i << " " << codec;
    if (!can_split(cluster.codec)) continue;
    EXPECT_LE(chosen, exhaustive_us(workload, cluster, split_groups) * 1.01) << i << " " << codec;
  }
}

// Expect: dynamic programming alone reaches the optimum of its own kind of plan, too.
TEST(Cuts, DynamicProgrammingFindsTheOptimum) {
  std::mt19937_64 random(6);
  for (int i = 0; i < 60; ++i) {
    const Workload workload = small_workload(random);
    const Cluster cluster = small_cluster(random, "none");
    Groups reduced;
    for (const OptimalGroup& group : best_all_reduce_groups(workload, cluster))
      reduced.push_back(group.layers);
    Groups split;
    for (const OptimalGroup& group : best_split_groups(workload, cluster))
      split.push_back(group.layers);
    const auto us = [&](const Plan& plan) {
      return simulate(workload, plan, cluster).iteration_us;
    };
    EXPECT_NEAR(us(all_reduce_groups(workload, cluster, reduced)),
                exhaustive_us(workload, cluster, all_reduce_groups), 1e-6);
    EXPECT_NEAR(us(split_groups(workload, cluster, split)),
                exhaustive_us(workload, cluster, split_groups), 1e-6);
  }
}

TEST(Cuts, MergecompReaches97PercentOfExhaustiveSearch) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 120; ++i) {
    const Workload workload = small_workload(random);
    const Cluster cluster = small_cluster(random, kCodecs[i % 4]);
    EXPECT_LE(planned_us("mergecomp", workload, cluster),
              exhaustive_us(workload, cluster, all_reduce_groups) / 0.97)
        << i;
  }
}

TEST(Cuts, MergecompReaches97PercentWithAForcedNumberOfGroups) {
  std::mt19937_64 random(8);
  for (int i = 0; i < 60; ++i) {
    const Workload workload = small_workload(random);
    const Cluster cluster = small_cluster(random, kCodecs[i % 4]);
    ScheduleOptions options;
    options.groups = static_cast<uint32_t>(1 + random() % workload.layers.size());
    EXPECT_LE(planned_us("mergecomp", workload, cluster, options),
              exhaustive_us(workload, cluster, all_reduce_groups, options.groups) / 0.97)
        << i;
  }
}

// Per-codec choice: with one large and many small gradients, only the large one is worth coding.
TEST(Cuts, AutoCompressesOnlyWhatPays) {
  const Workload workload =
      test::make_workload({{4000, 10, 50}, {4'000'000, 10, 2000}, {4000, 10, 50}});
  Cluster cluster = test::two_nodes(5, 1);
  cluster.codec = parse_codec_cost("topk:encode_us=300,decode_us=300").take();
  const std::vector<OptimalGroup> groups = best_all_reduce_groups(workload, cluster);
  for (const OptimalGroup& group : groups) {
    const bool large = std::count(group.layers.begin(), group.layers.end(), 1u) > 0;
    EXPECT_EQ(group.compressed, large);
  }
}

TEST(Cuts, TheSearchAsksFewQuestions) {
  int questions = 0;
  const Cuts cuts = search_cuts(400, {.groups = 2}, [&](const Cuts& asked) {
    ++questions;
    const double away = asked.empty() ? 400 : asked[0] - 137.0;
    return 1000 + away * away;
  });
  EXPECT_EQ(cuts, Cuts{137});
  EXPECT_LT(questions, 60);
}

// Expect: cuts that gain nothing are not made.
TEST(Cuts, TheSearchStops) {
  int questions = 0;
  const Cuts cuts = search_cuts(100, {}, [&](const Cuts& asked) {
    ++questions;
    return 100.0 + static_cast<double>(asked.size());
  });
  EXPECT_TRUE(cuts.empty());
  EXPECT_LT(questions, 200);
}

// A rank may ask for as many groups as there are layers.
TEST(Cuts, ManyGroupsDoNotTakeForEver) {
  for (const uint32_t groups : {25U, 200U, 512U, 1024U}) {
    int questions = 0;
    const Cuts cuts = search_cuts(1024, {.groups = groups}, [&](const Cuts& asked) {
      ++questions;
      double cost = 0;  // the longer the first groups are, the better
      for (const uint32_t cut : asked) cost -= cut;
      return cost;
    });
    EXPECT_EQ(cuts.size() + 1, groups);
    EXPECT_LT(questions, 25'000);
  }
}

TEST(Cuts, ThousandsOfLayersAreJoined) {
  const Workload workload = test::make_workload(std::vector<test::LayerRow>(3000, {4096, 1, 2}));
  const std::vector<OptimalGroup> groups = best_all_reduce_groups(workload, test::two_nodes(10, 1));
  size_t layers = 0;
  for (const OptimalGroup& group : groups) layers += group.layers.size();
  EXPECT_EQ(layers, 3000u);
}

}  // namespace
}  // namespace gradbus::scheduling
