// The environment of a rank: what it gets, what wins, and what leaves this machine.
#include "cli/process/rank_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradbus {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

RankIdentity identity() {
  RankIdentity id;
  id.job = "run-x";
  id.rank = 3;
  id.size = 4;
  id.local_rank = 1;
  id.local_size = 2;
  return id;
}

TEST(RankEnv, NamesThePlace) {
  const Variables variables = rank_variables(identity());
  EXPECT_THAT(variables, Contains(Pair("GRADBUS_RANK", "3")));
  EXPECT_THAT(variables, Contains(Pair("GRADBUS_SIZE", "4")));
  EXPECT_THAT(variables, Contains(Pair("GRADBUS_LOCAL_RANK", "1")));
  EXPECT_THAT(variables, Contains(Pair("GRADBUS_JOB", "run-x")));
  EXPECT_THAT(variables, Contains(Pair("PYTHONUNBUFFERED", "1")));
}

TEST(RankEnv, HasTheNamesOfTorchDistributed) {
  const Variables variables = rank_variables(identity());
  EXPECT_THAT(variables, Contains(Pair("RANK", "3")));
  EXPECT_THAT(variables, Contains(Pair("WORLD_SIZE", "4")));
  EXPECT_THAT(variables, Contains(Pair("LOCAL_RANK", "1")));
  EXPECT_THAT(variables, Contains(Pair("LOCAL_WORLD_SIZE", "2")));
  EXPECT_THAT(variables, Contains(Pair("HOROVOD_RANK", "3")));
}

TEST(RankEnv, WhatWasNotGivenIsNotSet) {
  EXPECT_THAT(rank_variables(identity()), Not(Contains(Pair("GRADBUS_SOCKET", ""))));
  EXPECT_THAT(rank_variables(identity()), Not(Contains(Pair("GRADBUS_OP_TIMEOUT", ""))));
  EXPECT_THAT(rank_variables(identity()), Not(Contains(Pair("GRADBUS_FENCE_EVERY", "0"))));
  RankIdentity given = identity();
  given.socket = "/s";
  given.op_timeout_s = "7.5";
  given.elastic_timeout_s = "90";
  given.fence_every = 500;
  EXPECT_THAT(rank_variables(given), Contains(Pair("GRADBUS_SOCKET", "/s")));
  EXPECT_THAT(rank_variables(given), Contains(Pair("GRADBUS_OP_TIMEOUT", "7.5")));
  EXPECT_THAT(rank_variables(given), Contains(Pair("GRADBUS_ELASTIC_TIMEOUT", "90")));
  EXPECT_THAT(rank_variables(given), Contains(Pair("GRADBUS_FENCE_EVERY", "500")));
}

TEST(RankEnv, ChangesReplaceWhatWasThere) {
  EXPECT_THAT(merge_environment({"A=1", "AB=2", "B=x=y"}, {{"A", "9"}, {"C", ""}}),
              ElementsAre("AB=2", "B=x=y", "A=9", "C="));
}

TEST(RankEnv, OnlyWhatARankNeedsLeavesThisMachine) {
  const Variables sent = forwarded_variables(
      {"PATH=/bin", "HOME=/h", "SECRET_TOKEN=t", "PYTHONPATH=/p", "GRADBUS_SOCKET=/s",
       "GRADBUS_X=1", "OMP_NUM_THREADS=2", "MINE=m", "PYTHON BAD=1"},
      {"MINE", "NEW=a=b"});
  EXPECT_THAT(sent,
              ElementsAre(Pair("PATH", "/bin"), Pair("PYTHONPATH", "/p"), Pair("GRADBUS_X", "1"),
                          Pair("OMP_NUM_THREADS", "2"), Pair("MINE", "m"), Pair("NEW", "a=b")));
}

TEST(RankEnv, NamesAShellAccepts) {
  for (const char* good : {"A", "_a1", "NAME=VALUE", "E="}) EXPECT_TRUE(check_variable(good).ok());
  for (const char* bad : {"", "=x", "1A=x", "a b", "A;reboot=1", "A-B=1"})
    EXPECT_THAT(check_variable(bad).message(), HasSubstr("GB-H200")) << bad;
}

}  // namespace
}  // namespace gradbus
