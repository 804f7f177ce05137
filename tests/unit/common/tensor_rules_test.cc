#include "common/policy/tensor_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/policy/sync_mode.h"

namespace gradbus {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Result<TensorRules> parse(std::string_view text) {
  return TensorRules::parse(compression_variable(), text);
}

TEST(TensorRules, GlobsMatchWholeNames) {
  EXPECT_TRUE(glob_matches("*", ""));
  EXPECT_TRUE(glob_matches("*", "fc1.weight"));
  EXPECT_TRUE(glob_matches("fc?.*", "fc1.weight"));
  EXPECT_TRUE(glob_matches("*.weight", "a.weight.b.weight"));
  EXPECT_TRUE(glob_matches("a*b*c", "aXbYbZc"));
  EXPECT_FALSE(glob_matches("*.weight", "fc1.weights"));
  EXPECT_FALSE(glob_matches("fc?", "fc"));
  EXPECT_FALSE(glob_matches("", "a"));
}

TEST(TensorRules, OneCompressionLeavesVectorsAndSmallTensorsDense) {
  const TensorRules policy = parse("topk:ratio=0.01").take();
  EXPECT_EQ(policy.find("w", 1 << 20, 2), "topk:ratio=0.01");
  EXPECT_EQ(policy.find("w", 1 << 20, 0), "topk:ratio=0.01");  // dimensions unknown
  EXPECT_EQ(policy.find("bias", 1 << 20, 1), "");
  EXPECT_EQ(policy.find("w", 16383, 2), "");
  EXPECT_EQ(policy.find("w", 16384, 2), "topk:ratio=0.01");
}

TEST(TensorRules, TheFirstMatchWins) {
  const TensorRules policy({{.name = "*.bias", .value = "none"},
                            {.name = "layer1.*", .elements_max = 100, .value = "fp16"},
                            {.dims_min = 2, .dims_max = 2, .value = "onebit"}});
  EXPECT_EQ(policy.find("layer1.bias", 50, 2), "none");
  EXPECT_EQ(policy.find("layer1.w", 50, 2), "fp16");
  EXPECT_EQ(policy.find("layer1.w", 101, 2), "onebit");
  EXPECT_EQ(policy.find("conv", 101, 4), "");
}

TEST(TensorRules, TextAndBack) {
  const std::vector<TensorRule> rules = {
      {.name = "a*", .elements_min = 3, .value = "topk:ratio=0.1,ef=none"},
      {.elements_max = 7, .dims_min = 1, .dims_max = 4, .value = "none"}};
  const Result<TensorRules> again = parse(TensorRules(rules).text());
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again.value().rules(), rules);
}

TEST(TensorRules, NothingIsDense) {
  EXPECT_EQ(parse("").take().find("w", 1 << 20, 2), "");
  EXPECT_EQ(parse("none").take().find("w", 1 << 20, 2), "");
}

TEST(TensorRules, RefusesMalformedRules) {
  for (const char* text : {"a|b", "a|1|2|3|4|", "|1|2|3|4|none", "a|1|2|x|4|none", "a|1|2|3|none"})
    EXPECT_THAT(parse(text).status().message(), HasSubstr("GB-O910")) << text;
}

TEST(TensorRules, AModeIsOfAllTensors) {
  const auto modes = [](std::string_view text) {
    return TensorRules::parse(mode_variable(), text);
  };
  EXPECT_EQ(modes("delayed:k=2").value().find("bias", 3, 1), "delayed:k=2");
  EXPECT_EQ(modes("sync").value().find("bias", 3, 1), "");
  EXPECT_THAT(modes("a|b").status().message(), HasSubstr("GRADBUS_MODE holds the rule \"a|b\""));
}

TEST(SyncMode, ReadsWhatThereIs) {
  EXPECT_EQ(parse_mode("").value().kind, SyncMode::Kind::kSync);
  EXPECT_EQ(parse_mode("sync").value().delay, 0u);
  EXPECT_EQ(parse_mode("delayed").value().delay, 1u);
  EXPECT_EQ(parse_mode("delayed:k=1").value().canonical, "delayed");
  EXPECT_EQ(parse_mode("delayed:k=7").value().canonical, "delayed:k=7");
  EXPECT_FALSE(parse_mode("delayed").value().is_local());
}

TEST(SyncMode, Averaging) {
  const SyncMode steps = parse_mode("averaging:every=10").value();
  EXPECT_EQ(steps.kind, SyncMode::Kind::kAveraging);
  EXPECT_TRUE(steps.is_local());
  EXPECT_EQ(steps.period_steps, 10u);
  EXPECT_EQ(steps.period_ms, 0u);
  const SyncMode time = parse_mode("averaging:every_ms=500").value();
  EXPECT_EQ(time.period_steps, 0u);
  EXPECT_EQ(time.period_ms, 500u);
  EXPECT_EQ(time.canonical, "averaging:every_ms=500");
}

TEST(SyncMode, LocalSgdIsDilocoWithAPlainOuterStep) {
  const SyncMode mode = parse_mode("localsgd:H=100000").value();
  EXPECT_EQ(mode.kind, SyncMode::Kind::kLocalSgd);
  EXPECT_EQ(mode.period_steps, 100000u);
  EXPECT_EQ(mode.outer_lr, 1);
  EXPECT_EQ(mode.outer_momentum, 0);
  EXPECT_EQ(mode.fragments, 1u);
  EXPECT_EQ(mode.overlap, 0u);
  EXPECT_EQ(mode.canonical, "localsgd:H=100000");
}

TEST(SyncMode, Diloco) {
  const SyncMode usual = parse_mode("diloco").value();
  EXPECT_EQ(usual.kind, SyncMode::Kind::kDiloco);
  EXPECT_EQ(usual.period_steps, 50u);
  EXPECT_EQ(usual.outer_lr, 0.7);
  EXPECT_EQ(usual.outer_momentum, 0.9);
  EXPECT_EQ(usual.fragments, 1u);
  EXPECT_EQ(usual.overlap, 0u);
  const SyncMode mode =
      parse_mode("diloco:fragments=3,H=10,overlap=3,outer_lr=1,outer_momentum=0").value();
  EXPECT_EQ(mode.period_steps, 10u);
  EXPECT_EQ(mode.outer_lr, 1);
  EXPECT_EQ(mode.outer_momentum, 0);
  EXPECT_EQ(mode.fragments, 3u);
  EXPECT_EQ(mode.overlap, 3u);  // below 10 / 3
  EXPECT_EQ(mode.canonical, "diloco:H=10,outer_lr=1,outer_momentum=0,fragments=3,overlap=3");
}

TEST(SyncMode, Gossip) {
  const SyncMode usual = parse_mode("gossip").value();
  EXPECT_EQ(usual.kind, SyncMode::Kind::kGossip);
  EXPECT_TRUE(usual.is_local());
  EXPECT_FALSE(usual.on_shards());
  EXPECT_EQ(usual.topology, SyncMode::Topology::kRandom);
  EXPECT_EQ(usual.period_steps, 1u);
  EXPECT_EQ(usual.seed, 0u);
  EXPECT_FALSE(usual.wait);
  EXPECT_EQ(usual.canonical, "gossip");
  const SyncMode mode = parse_mode("gossip:wait=1,every=3,topology=ring,seed=4294967295").value();
  EXPECT_EQ(mode.topology, SyncMode::Topology::kRing);
  EXPECT_EQ(mode.period_steps, 3u);
  EXPECT_EQ(mode.seed, 4294967295u);
  EXPECT_TRUE(mode.wait);
  EXPECT_EQ(mode.canonical, "gossip:topology=ring,every=3,seed=4294967295,wait=1");
}

TEST(SyncMode, ParametersHaveTwoCopiesWhereTheyCan) {
  const SyncMode async = parse_mode("ps:async").value();
  EXPECT_EQ(async.canonical, "ps:async");
  EXPECT_EQ(async.settled_replicas(2), 2u);
  EXPECT_EQ(async.settled_replicas(1), 1u) << "one shard";
  EXPECT_EQ(parse_mode("ps:async,replicas=1").value().settled_replicas(2), 1u);
  EXPECT_EQ(parse_mode("ps:ssp").value().settled_replicas(3), 2u);
  EXPECT_EQ(parse_mode("ps:sync").value().settled_replicas(3), 1u);
  EXPECT_EQ(parse_mode("ps:sync,replicas=2").value().settled_replicas(3), 2u);
  EXPECT_EQ(parse_mode("ps:sync,replicas=2").value().canonical, "ps:sync,replicas=2");
}

// Expect: lamb has its own epsilon, which its text omits when it is the default.
TEST(SyncMode, LambKeepsTensorsWhole) {
  const SyncMode lamb = parse_mode("ps:async,optimizer=lamb").value();
  EXPECT_TRUE(lamb.keeps_tensors_whole());
  EXPECT_FALSE(parse_mode("ps:async,optimizer=adam").value().keeps_tensors_whole());
  EXPECT_EQ(lamb.optimizer.kind, ServerOptimizer::Kind::kLamb);
  EXPECT_EQ(lamb.optimizer.epsilon, 1e-6);
  EXPECT_EQ(lamb.optimizer.weight_decay, 0);
  EXPECT_EQ(lamb.settled_replicas(3), 2u);
  const SyncMode told = parse_mode("ps:ssp,eps=1e-8,replicas=1,optimizer=lamb").value();
  EXPECT_EQ(told.optimizer.epsilon, 1e-8);
  EXPECT_EQ(told.canonical, "ps:ssp,optimizer=lamb,eps=1e-08,replicas=1");
  EXPECT_EQ(parse_mode(told.canonical).value().optimizer.epsilon, 1e-8);
  EXPECT_EQ(parse_mode("ps:async,eps=1e-6,optimizer=lamb").value().canonical,
            "ps:async,optimizer=lamb");
  EXPECT_EQ(parse_mode("ps:async,eps=1e-8,optimizer=adam").value().canonical,
            "ps:async,optimizer=adam");
}

// Expect: a front end sees whether its user named the optimizer and the rate, also the defaults.
TEST(SyncMode, KeepsTheNamedOptimizerAndRate) {
  EXPECT_EQ(parse_mode("ps:async,lr=0.010,optimizer=sgd,momentum=0").value().canonical,
            "ps:async,optimizer=sgd,lr=0.01");
}

TEST(SyncMode, DelayCompensation) {
  const SyncMode plain = parse_mode("delayed:k=2").value();
  EXPECT_EQ(plain.dc, 0);
  EXPECT_LT(plain.dc_decay, 0);
  const SyncMode constant = parse_mode("delayed:dc=0.04").value();
  EXPECT_EQ(constant.delay, 1u);
  EXPECT_EQ(constant.dc, 0.04);
  EXPECT_LT(constant.dc_decay, 0);
  EXPECT_EQ(constant.canonical, "delayed:dc=0.04");
  const SyncMode adaptive = parse_mode("delayed:dc_decay=0,dc=2,k=4").value();
  EXPECT_EQ(adaptive.dc, 2);
  EXPECT_EQ(adaptive.dc_decay, 0);
  EXPECT_EQ(adaptive.canonical, "delayed:k=4,dc=2,dc_decay=0");
}

TEST(SyncMode, MistakesOfTheModesOfParameters) {
  const std::pair<const char*, const char*> cases[] = {
      {"localsg:H=8", "did you mean \"localsgd\"?"},
      {"dilocco", "did you mean \"diloco\"?"},
      {"averagng:every=1", "did you mean \"averaging\"?"},
      {"localsgd:H=0", "expected a whole number from 1 to 1000000"},
      {"localsgd:H=1.5", "expected a whole number"},
      {"localsgd:h=8", "no option \"h\"; its options: H"},
      {"averaging", "give one of every=STEPS and every_ms=MILLISECONDS"},
      {"averaging:every=2,every_ms=5", "give one of every=STEPS and every_ms=MILLISECONDS"},
      {"averaging:every=0", "expected a whole number from 1"},
      {"averaging:evry=3", "did you mean \"every\"?"},
      {"diloco:outer_lr=0", "expected a number from 0.001 to 100"},
      {"diloco:outer_momentum=1", "expected a number from 0 to 0.9999"},
      {"diloco:outer_momentm=0", "did you mean \"outer_momentum\"?"},
      {"diloco:H=4,fragments=5", "option fragments is above H"},
      {"diloco:H=10,fragments=5,overlap=2", "option overlap must be below H / fragments"},
      {"diloco:H=10,overlap=-1", "expected a whole number from 0"},
      {"gosip", "did you mean \"gossip\"?"},
      {"gossip:topology=star", "option topology is \"star\", expected one of random, ring"},
      {"gossip:topolgy=ring", "did you mean \"topology\"?"},
      {"gossip:every=0", "expected a whole number from 1 to 1000000"},
      {"gossip:seed=-1", "expected a whole number from 0 to 4294967295"},
      {"gossip:wait=2", "expected a whole number from 0 to 1"},
  };
  for (const auto& [text, says] : cases) {
    const std::string message = parse_mode(text).status().message();
    EXPECT_THAT(message, HasSubstr("GB-O911")) << text;
    EXPECT_THAT(message, HasSubstr(says)) << text;
  }
}

TEST(SyncMode, MistakesAreNamed) {
  const auto message = [](std::string_view text) { return parse_mode(text).status().message(); };
  EXPECT_THAT(message("delaid"), HasSubstr("did you mean \"delayed\"?"));
  EXPECT_THAT(message("delayed:k=-1"), HasSubstr("expected a whole number from 1 to 64"));
  EXPECT_THAT(message("delayed:k=0"), HasSubstr("GB-O911"));
  EXPECT_THAT(message("delayed:j=1"), HasSubstr("no option \"j\""));
  EXPECT_THAT(message("sync:k=1"), HasSubstr("no option \"k\""));
  EXPECT_THAT(message("delayed:dc=-0.1"), HasSubstr("expected a number from 0 to 1000000"));
  EXPECT_THAT(message("delayed:dc=nan"), HasSubstr("GB-O911"));
  EXPECT_THAT(message("delayed:dc=2,dc_decay=1"), HasSubstr("expected a number from 0 to 0.9999"));
  EXPECT_THAT(message("delayed:dc_decay=0.95"), HasSubstr("option dc_decay adapts dc"));
  EXPECT_THAT(message("delayed:cd=1"), HasSubstr("its options: k, dc, dc_decay"));
  EXPECT_THAT(message("delayed:dc=1,dc_decy=0"), HasSubstr("did you mean \"dc_decay\"?"));
}

}  // namespace
}  // namespace gradbus
