// The plan of a launch: which daemons, how many agents, where each rank goes.
#include "cli/launch/launch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

namespace gradbus {
namespace {

using ::testing::HasSubstr;

constexpr char kSocket[] = "/run/gradbus/agent.sock";

RunOptions options_for(const std::string& ranks) {
  RunOptions options;
  options.ranks = ranks;
  options.command = {"true"};
  return options;
}

TEST(LaunchPlan, AnAgentThatAnswersServesAll) {
  const auto plan = make_plan(options_for("3"), kSocket);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_FALSE(plan.value().embedded);
  EXPECT_EQ(plan.value().socket, kSocket);
  EXPECT_EQ(plan.value().blocks.size(), 1u);
  EXPECT_EQ(plan.value().places[2], (RankPlace{2, 0, 2}));
}

TEST(LaunchPlan, NobodyAnswersSoOneEmbeddedAgent) {
  const auto plan = make_plan(options_for("3"), "");
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan.value().embedded);
  EXPECT_EQ(plan.value().blocks.size(), 1u);
}

TEST(LaunchPlan, AgentsAreEmbeddedEvenWhenOneAnswers) {
  RunOptions options = options_for("5");
  options.agents = "2";
  const auto plan = make_plan(options, kSocket);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan.value().embedded);
  EXPECT_EQ(plan.value().socket, "");
  EXPECT_EQ(plan.value().local_size(0), 3);
  EXPECT_EQ(plan.value().local_size(1), 2);
  EXPECT_EQ(plan.value().places[3], (RankPlace{3, 1, 0}));
}

TEST(LaunchPlan, LocalHostsAreBlocksAndUnusedOnesAreDropped) {
  RunOptions options = options_for("3");
  options.hosts = "localhost:2,127.0.0.1:2,localhost:2";
  const auto plan = make_plan(options, "");
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_TRUE(plan.value().embedded);
  EXPECT_EQ(plan.value().blocks.size(), 2u);
  EXPECT_EQ(plan.value().ranks_on_this_machine(), 3);
}

TEST(LaunchPlan, WithoutNumberAllSlotsAreUsed) {
  RunOptions options = options_for("");
  options.hosts = "localhost:2,localhost:3";
  EXPECT_EQ(make_plan(options, "").value().ranks, 5);
}

TEST(LaunchPlan, OtherHostsNeedDaemons) {
  RunOptions options = options_for("");
  options.hosts = "node-far:2";
  const auto remote = make_plan(options, "");
  ASSERT_TRUE(remote.ok());
  EXPECT_FALSE(remote.value().embedded);
  EXPECT_EQ(remote.value().ranks_on_this_machine(), 0);

  options.embedded = true;
  EXPECT_THAT(make_plan(options, "").status().message(), HasSubstr("GB-H200"));

  options.embedded = false;
  options.hosts = "localhost:1,node-far:2";
  EXPECT_THAT(make_plan(options, "").status().message(), HasSubstr("GB-A300"));
  const auto mixed = make_plan(options, kSocket);
  ASSERT_TRUE(mixed.ok());
  EXPECT_FALSE(mixed.value().embedded);
  EXPECT_EQ(mixed.value().ranks_on_this_machine(), 1);
}

TEST(LaunchPlan, WhatCannotBeMet) {
  RunOptions options = options_for("2");
  options.agents = "3";
  EXPECT_THAT(make_plan(options, "").status().message(), HasSubstr("3 agents for 2 ranks"));
  options = options_for("5");
  options.hosts = "localhost:4";
  EXPECT_THAT(make_plan(options, "").status().message(), HasSubstr("do not fit into 4 slots"));
}

TEST(JobName, IsReadableAndRandom) {
  std::set<std::string> names;
  for (int i = 0; i < 100; ++i) {
    const std::string name = random_job_name();
    EXPECT_TRUE(std::regex_match(name, std::regex("run-([bdfgklmnprstvwz][aeiou]){4}"))) << name;
    names.insert(name);
  }
  // 31.6 million names: two of a hundred are equal once in 6,400 runs; three once in 10^9.
  EXPECT_GE(names.size(), 99u);
}

}  // namespace
}  // namespace gradbus
