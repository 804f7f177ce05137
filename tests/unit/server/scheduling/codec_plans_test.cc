// Codecs by bucket: used where they shorten the step, and nowhere else.
#include "server/scheduling/job/codec_plans.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "server/scheduling/job/job_question.h"
#include "tests/unit/server/scheduling/workloads.h"

namespace gradbus::scheduling {
namespace {

using Json = nlohmann::json;
using test::make_workload;
using test::two_nodes;

// Dense: 20 us and 10 ns a byte. The codec: a tenth of the bytes, `startup_us` more and no more.
Cluster with_codec(double startup_us, double byte_ns = 10) {
  Cluster cluster = two_nodes(10, byte_ns);
  cluster.more_codecs = {{.name = "tenth",
                          .ratio = 0.1,
                          .encode = {startup_us, 0},
                          .decode = {},
                          .carrier = Carrier::kAllReduce}};
  return cluster;
}

JobPlan now(JobWait wait, Groups groups) {
  return {.schedule = "now", .wait = wait, .groups = std::move(groups)};
}

TEST(CodecPlans, ACodecShortensTheExchangeThatIsWaitedFor) {
  // Forward 2 * 10, backward 2 * 20. Layer 1 is ready at 40, layer 0 at 60. Dense, each takes 420
  // us.
  const Workload workload = make_workload({{40'000, 10, 20}, {40'000, 10, 20}});
  const JobPlan groups = now(JobWait::kBackward, {{1}, {0}});
  const CodecPlans found = plan_codecs(workload, with_codec(5), groups, {true, true});
  EXPECT_DOUBLE_EQ(found.dense_us, 40 + 2 * 420);
  ASSERT_EQ(found.plans.size(), 1u);
  EXPECT_EQ(found.plans[0].codecs, (std::vector<uint32_t>{1, 1}));
  // Encoded at 45 and sent until 105; the second one is encoded at 65, and sent until 165.
  EXPECT_DOUBLE_EQ(found.plans[0].step_us, 45 + 2 * 60);
}

TEST(CodecPlans, AHiddenExchangeStaysDense) {
  // Layer 1 is sent while layer 0 computes for 10 ms, so only layer 0 is waited for.
  const Workload workload = make_workload({{40'000, 10, 10'000}, {40'000, 10, 20}});
  const CodecPlans found =
      plan_codecs(workload, with_codec(5), now(JobWait::kBackward, {{1}, {0}}), {true, true});
  ASSERT_EQ(found.plans.size(), 1u);
  EXPECT_EQ(found.plans[0].codecs, (std::vector<uint32_t>{0, 1}));
}

TEST(CodecPlans, NothingIsCompressedWhereThatTakesLonger) {
  const Workload workload = make_workload({{40'000, 10, 20}, {40'000, 10, 20}});
  const JobPlan groups = now(JobWait::kBackward, {{1}, {0}});
  EXPECT_TRUE(plan_codecs(workload, with_codec(1000), groups, {true, true}).plans.empty());
  EXPECT_TRUE(plan_codecs(workload, with_codec(5, 0.01), groups, {true, true}).plans.empty());
  EXPECT_TRUE(plan_codecs(workload, with_codec(5), groups, {false, false}).plans.empty());
}

TEST(CodecPlans, EachBucketGetsTheCodecThatSuitsIt) {
  Cluster cluster = with_codec(5);
  cluster.more_codecs.push_back({.name = "hundredth",
                                 .ratio = 0.01,
                                 .encode = {100, 0},
                                 .decode = {},
                                 .carrier = Carrier::kAllReduce});
  // 20,000 bytes: 220 us dense, 45 us, 122 us. 400,000 bytes: 4,020 us dense, 425 us, 160 us.
  const Workload workload = make_workload({{400'000, 10, 20}, {20'000, 10, 20}});
  const CodecPlans found =
      plan_codecs(workload, cluster, now(JobWait::kBackward, {{1}, {0}}), {true, true});
  ASSERT_FALSE(found.plans.empty());
  EXPECT_EQ(found.plans[0].codecs, (std::vector<uint32_t>{1, 2}));
}

// Random models: never a plan that the simulator holds for slower than dense, nor a codec where
// none may be; plans are in order.
TEST(CodecPlans, NoPlanIsSlowerThanDense) {
  std::mt19937_64 random(11);
  const auto below = [&](uint64_t most) { return random() % most; };
  for (int i = 0; i < 200; ++i) {
    std::vector<test::LayerRow> rows;
    for (uint64_t n = 1 + below(8); n > 0; --n)
      rows.push_back({4 * (1 + below(100'000)), double(below(200)), double(below(400))});
    const Workload workload = make_workload(rows);
    Groups groups;
    for (size_t n = rows.size(); n-- > 0;) {
      if (groups.empty() || below(2) == 0) groups.emplace_back();
      groups.back().push_back(static_cast<uint32_t>(n));
    }
    std::vector<bool> compressible;
    for (size_t n = 0; n < groups.size(); ++n) compressible.push_back(below(4) > 0);
    Cluster cluster = with_codec(double(below(300)), double(below(30)));
    cluster.more_codecs.push_back({.name = "half",
                                   .ratio = 0.5,
                                   .encode = {double(below(50)), 0.1},
                                   .decode = {},
                                   .carrier = Carrier::kAllReduce});
    const auto wait = static_cast<JobWait>(below(3));
    const CodecPlans found = plan_codecs(workload, cluster, now(wait, groups), compressible);
    double before = 0;
    for (const CodecPlan& plan : found.plans) {
      EXPECT_LT(plan.step_us, found.dense_us);
      EXPECT_GE(plan.step_us, before);
      before = plan.step_us;
      for (size_t n = 0; n < groups.size(); ++n) {
        EXPECT_LE(plan.codecs[n], compressible[n] ? 2u : 0u);
      }
    }
  }
}

Json question() {
  return Json::parse(R"({"want": "codecs", "network": {"startup_us": 20, "byte_ns": 10},
    "codecs": [{"name": "fp16", "startup_us": 25, "byte_ns": 5.1}],
    "workload": {"layers": [{"elements": 10000, "forward_us": 10, "backward_us": 20},
                            {"elements": 10000, "forward_us": 10, "backward_us": 20}]},
    "now": {"waits": "backward", "groups": [[1], [0]]}})");
}

std::string refusal(const Json& asked) {
  const Result<std::string> found = answer_job(asked.dump());
  EXPECT_FALSE(found.ok()) << asked;
  return std::string(found.status().message());
}

TEST(CodecQuestions, AreAnsweredByPlans) {
  const Json found = Json::parse(answer_job(question().dump()).value());
  EXPECT_DOUBLE_EQ(found["dense_us"].get<double>(), 40 + 2 * 420);
  EXPECT_EQ(found["plans"][0]["codecs"], Json::parse("[1, 1]"));
  EXPECT_LT(found["plans"][0]["us"].get<double>(), 500);
  Json asked = question();
  asked["now"]["dense"] = {0};
  EXPECT_EQ(Json::parse(answer_job(asked.dump()).value())["plans"][0]["codecs"],
            Json::parse("[0, 1]"));
}

TEST(CodecQuestions, AreRefusedWhenTheyAreWrong) {
  const std::pair<const char*, const char*> rows[] = {
      {R"({"codecs": []})", "no list of 1 to 8"},
      {R"({"codecs": [{"name": "fp16"}]})", "startup_us"},
      {R"({"now": {"waits": "never", "groups": [[1], [0]]}})", "where ranks wait"},
      {R"({"now": {"waits": "layer", "groups": [[1]]}})", "each layer once"},
      {R"({"now": {"waits": "layer", "groups": [[1], [0]], "dense": [2]}})",
       "a group that there is not"},
      {R"({"workload": 3})", ""},
  };
  for (const auto& [change, part] : rows) {
    Json asked = question();
    asked.update(Json::parse(change));
    EXPECT_NE(refusal(asked).find(part), std::string::npos) << refusal(asked);
  }
}

TEST(CodecQuestions, ACodecIsCheckedBeforeTheTrainingBegins) {
  EXPECT_EQ(answer_job(R"({"want": "check_codecs", "codecs": ["fp16", "topk:ratio=0.1"]})").value(),
            "{}");
  const Json wrong = {{"want", "check_codecs"}, {"codecs", {"fp16", "topq"}}};
  EXPECT_NE(refusal(wrong).find("did you mean \"topk\"?"), std::string::npos) << refusal(wrong);
}

}  // namespace
}  // namespace gradbus::scheduling
