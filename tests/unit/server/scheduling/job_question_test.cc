// Questions of running jobs: what is answered, what is refused, and that cuts are near the best.
#include "server/scheduling/job/job_question.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "server/scheduling/job/job_plans.h"
#include "server/scheduling/tuner/bayesian_search.h"
#include "tests/unit/server/scheduling/workloads.h"

namespace gradbus::scheduling {
namespace {

using Json = nlohmann::json;

Json layer(uint64_t elements, double forward_us, double backward_us) {
  return {{"elements", elements}, {"forward_us", forward_us}, {"backward_us", backward_us}};
}

// Four layers of 4,000 bytes; an all-reduce takes 100 us and 1 ns a byte.
Json question(const std::string& schedule) {
  const Json layers = {layer(1000, 10, 20), layer(1000, 10, 20), layer(1000, 10, 20),
                       layer(1000, 10, 20)};
  return {{"want", "plan"},
          {"schedule", schedule},
          {"network", {{"startup_us", 100}, {"byte_ns", 1}}},
          {"workload", {{"layers", layers}}}};
}

Json answer(const Json& asked) {
  const Result<std::string> text = answer_job(asked.dump());
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? Json::parse(text.value()) : Json();
}

std::string refusal_of(const std::string& text) {
  const Result<std::string> found = answer_job(text);
  EXPECT_FALSE(found.ok()) << text;
  return found.status().message();
}

std::string refusal(const Json& asked) { return refusal_of(asked.dump()); }

TEST(JobQuestion, MgWfbpMergesWhatIsReadyWithinAStartup) {
  // Ready at 20, 40, 60 and 80 us: the first group may start at 20, and takes gradients before 120.
  const Json found = answer(question("mg-wfbp"));
  EXPECT_EQ(found["groups"], Json::parse("[[3, 2, 1, 0]]"));
  EXPECT_EQ(found["waits"], "backward");
  // Forward 40 and backward 80, then 100 us + 16,000 bytes * 1 ns.
  EXPECT_DOUBLE_EQ(found["us"].get<double>(), 40 + 80 + 116);
  EXPECT_DOUBLE_EQ(found["exposed_us"].get<double>(), 116);
}

TEST(JobQuestion, MergecompMakesAsManyGroupsAsAreAskedFor) {
  Json asked = question("mergecomp");
  for (size_t groups = 1; groups <= 4; ++groups) {
    asked["groups"] = groups;
    EXPECT_EQ(answer(asked)["groups"].size(), groups);
  }
  asked["groups"] = 5;
  EXPECT_NE(refusal(asked).find("ask for at most 4 groups"), std::string::npos);
}

// A codec is only a codec of groups that it makes faster.
TEST(JobQuestion, AutoLeavesACodecThatDoesNotPay) {
  Json asked = question("auto");
  asked["network"] = {{"startup_us", 10}, {"byte_ns", 100}};  // 1.6 ms for all bytes
  asked["codec"] = {{"name", "onebit"}, {"startup_us", 20}, {"byte_ns", 5}};
  const Json with = answer(asked)["compressed"];
  ASSERT_FALSE(with.empty());
  for (const Json& compressed : with) EXPECT_TRUE(compressed.get<bool>());
  // One layer through this codec takes 8 ms. At twice the time of dense, one would still pay: coded
  // while the link carries the others.
  asked["codec"] = {{"name", "onebit"}, {"startup_us", 20}, {"byte_ns", 2000}};
  const Json without = answer(asked)["compressed"];
  for (const Json& compressed : without) EXPECT_FALSE(compressed.get<bool>());
}

TEST(JobQuestion, AutoIsNeverSlowerThanWhatRuns) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 30; ++i) {
    const Workload workload = test::random_workload(random, 2 + random() % 20);
    Json layers;
    for (const Layer& one : workload.layers)
      layers.push_back(layer(one.elements, one.forward_us, one.backward_us));
    Json asked = question("auto");
    asked["workload"] = {{"layers", layers}, {"backward_order", workload.backward_order}};
    asked["forward"] = random() % 2 == 0;
    Json alone;
    for (const uint32_t one : gradient_order(workload)) alone.push_back({one});
    asked["now"] = {{"waits", "backward"}, {"groups", alone}};
    const Json found = answer(asked);
    EXPECT_LE(found["us"].get<double>(), found["now_us"].get<double>() * (1 + 1e-9));
    EXPECT_TRUE(asked["forward"].get<bool>() || found["waits"] == "backward");
  }
}

// The model may be wrong, so ranks can try the best plan of each wait.
TEST(JobQuestion, AutoAlsoNamesTheBestPlansWithOtherWaits) {
  Json asked = question("auto");
  EXPECT_TRUE(answer(asked)["others"].empty());
  asked["forward"] = true;
  const Json found = answer(asked);
  std::set<std::string> waits{found["waits"]};
  double us = found["us"];
  for (const Json& other : found["others"]) {
    EXPECT_TRUE(waits.insert(other["waits"]).second);
    EXPECT_LE(us, other["us"].get<double>());
    us = other["us"];
    size_t layers = 0;
    for (const Json& group : other["groups"]) layers += group.size();
    EXPECT_EQ(layers, 4u);
    EXPECT_EQ(other["compressed"].size(), other["groups"].size());
  }
  EXPECT_EQ(waits, (std::set<std::string>{"backward", "layer", "split"}));
}

// The measured times of ranks are noisy and uneven, unlike a table of operations.
TEST(JobQuestion, MergecompReaches97PercentOfTheBestCutsOnMeasuredCosts) {
  std::mt19937_64 random(11);
  std::lognormal_distribution<double> noise(0, 0.7);
  for (int i = 0; i < 60; ++i) {
    std::vector<test::LayerRow> rows;
    for (size_t j = 0, layers = 2 + random() % 8; j < layers; ++j)
      rows.push_back({4 + 4 * (random() % 200'000), 50 * noise(random), 120 * noise(random)});
    const Workload workload = test::make_workload(rows);
    Cluster cluster = test::two_nodes(20 + 100 * noise(random), 0.5 * noise(random));
    cluster.codec = parse_codec_cost("onebit").take();
    cluster.codec.encode = {30 * noise(random), 0.3 * noise(random)};
    const std::vector<uint32_t> order = gradient_order(workload);
    double best = std::numeric_limits<double>::infinity();
    for (uint32_t mask = 0; mask < 1u << (order.size() - 1); ++mask) {
      std::vector<uint32_t> cuts;
      for (uint32_t at = 1; at < order.size(); ++at)
        if (mask >> (at - 1) & 1) cuts.push_back(at);
      JobPlan plan{.groups = cut(order, cuts)};
      plan.compressed.assign(plan.groups.size(), true);
      predict(workload, cluster, &plan);
      best = std::min(best, plan.step_us);
    }
    const Result<JobPlan> found = plan_job("mergecomp", workload, cluster, {});
    ASSERT_TRUE(found.ok());
    EXPECT_LE(found.value().step_us * 0.97, best) << "workload " << i;
  }
}

TEST(JobQuestion, ASearchAsksWhatItAskedBefore) {
  Json asked = {
      {"want", "point"},
      {"dimensions", Json::parse(R"([{"name": "bytes", "min": 1, "max": 64, "log": true}])")},
      {"measured", Json::array()}};
  BayesianSearch search({{.name = "bytes", .min = 1, .max = 64, .logarithmic = true}}, {});
  double best = 1e9;
  for (int i = 0; i < 12; ++i) {
    const std::vector<double> point = answer(asked)["point"];
    EXPECT_EQ(point, search.ask());
    const double cost = 10 + std::abs(std::log2(point[0]) - 3.3);
    best = std::min(best, cost);
    asked["measured"].push_back({{"point", point}, {"cost", cost}});
    ASSERT_TRUE(search.tell(point, cost).ok());
  }
  EXPECT_LT(best, 10.2);
}

TEST(JobQuestion, BadQuestionsAreRefused) {
  EXPECT_NE(refusal_of("{\"want\": \"pl").find("GB-F102"), std::string::npos);
  EXPECT_NE(refusal(Json{{"want", "tea"}}).find("neither a plan, nor codecs, nor a point"),
            std::string::npos);
  EXPECT_NE(refusal(question("deer")).find("take one of mg-wfbp"), std::string::npos);
  // NaN is no JSON.
  std::string nan = question("auto").dump();
  nan.replace(nan.find("20.0"), 4, "NaN ");
  EXPECT_NE(refusal_of(nan).find("no JSON object"), std::string::npos);
  struct Row {
    const char* key;
    Json value;
    const char* part;
  };
  const Row rows[] = {
      {"workload", Json::object(), "there is no list \"layers\""},
      {"workload", Json{{"layers", Json::array({layer(1, -1, 0)})}}, "has no time"},
      {"network", Json(), "\"network\" has no times"},
      {"network", {{"startup_us", -1}, {"byte_ns", 1}}, "\"network\" has no times"},
      {"codec", {{"name", "topk"}}, "\"codec\" has no times"},
      {"groups", -1, "groups must be 1 to"},
      {"now", {{"waits", "never"}}, "where ranks wait"},
      {"now", Json::parse(R"({"waits": "split", "groups": [[0, 1], [1, 2, 3]]})"),
       "each layer once"},
      {"now", Json::parse(R"({"waits": "split", "groups": [[0, 1], [9]]})"), "each layer once"},
      {"now", Json::parse(R"({"waits": "split", "groups": [[0, 1]]})"), "each layer once"},
  };
  for (const Row& row : rows) {
    Json asked = question("auto");
    asked[row.key] = row.value;
    EXPECT_NE(refusal(asked).find(row.part), std::string::npos) << asked << refusal(asked);
  }
  Json many = question("auto");
  many["workload"]["layers"] = Json(std::vector<Json>(kJobLayersMax + 1, layer(1, 1, 1)));
  EXPECT_NE(refusal(many).find("more than 1024 layers"), std::string::npos);
  Json point = {{"want", "point"},
                {"dimensions", Json::parse(R"([{"name": "x", "min": 2, "max": 1}])")}};
  EXPECT_NE(refusal(point).find("\"min\" below \"max\""), std::string::npos);
}

// Every prefix and many damaged texts: an answer or a refusal, never an exception.
TEST(JobQuestion, DamagedQuestionsDoNotCrash) {
  const std::string whole = question("mergecomp").dump();
  std::mt19937_64 random(3);
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(answer_job(whole.substr(0, length)).ok());
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = whole;
    for (size_t j = 0; j <= random() % 3; ++j)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    (void)answer_job(damaged);
  }
}

}  // namespace
}  // namespace gradbus::scheduling
