// The same job, started again before the coordinator has heard that its former ranks have ended.
#include <gmock/gmock.h>

#include "tests/unit/server/coordinator/cluster.h"

namespace gradbus {
namespace {

using test::Cluster;
using test::error_of;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class StartedAgain : public testing::Test {
 protected:
  StartedAgain() { first = cluster.start_job("train", 2); }

  std::string refusal(uint64_t agent) { return error_of(cluster.last(agent)); }

  Cluster cluster;
  uint64_t first = 0;
};

TEST_F(StartedAgain, RanksWaitForTheEndOfTheJobBeforeThem) {
  cluster.left(1, first, 0, true);
  cluster.clear();
  cluster.join(1, "train", 0, 3);
  cluster.join(1, "train", 1, 3);
  cluster.advance(kWaitingJoinPatience / 2);
  EXPECT_THAT(cluster.inbox[1], IsEmpty());
  cluster.left(2, first, 1, true);
  cluster.join(2, "train", 2, 3);
  ASSERT_TRUE(cluster.last(1).has_job_started());
  EXPECT_NE(cluster.last(1).job_started().job_id(), first);
  EXPECT_EQ(cluster.last(2).job_started().job_id(), cluster.last(1).job_started().job_id());
}

TEST_F(StartedAgain, ADeathEndsTheJobBeforeThem) {
  cluster.join(1, "train", 0, 2);
  cluster.join(2, "train", 1, 2);
  cluster.left(2, first, 1, false, "killed by signal 9");
  EXPECT_TRUE(cluster.last(1).has_job_started());
  EXPECT_TRUE(cluster.last(2).has_job_started());
}

TEST_F(StartedAgain, AStopEndsTheJobBeforeThem) {
  cluster.join(1, "train", 0, 1);
  v1::StopJobRequest stop;
  stop.set_job("train");
  stop.mutable_caller();
  cluster.coordinator.stop_job(stop, "here", cluster.now);
  cluster.collect();
  EXPECT_TRUE(cluster.last(1).has_job_started());
}

TEST_F(StartedAgain, TheLossOfAnAgentEndsTheJobBeforeThem) {
  cluster.join(1, "train", 0, 1);
  cluster.join(2, "train", 1, 2);
  cluster.drop(2);
  EXPECT_TRUE(cluster.last(1).has_job_started());
  EXPECT_EQ(cluster.last(1).job_started().members_size(), 1);
}

TEST_F(StartedAgain, AJobThatGoesOnRefusesThem) {
  cluster.clear();
  cluster.join(1, "train", 0, 2);
  cluster.join(2, "train", 1, 5);
  EXPECT_THAT(cluster.inbox[1], IsEmpty());
  cluster.advance(kWaitingJoinPatience);
  EXPECT_THAT(refusal(1), StartsWith("GB-J402"));
  EXPECT_EQ(cluster.last(1).join_refused().join(), cluster.joins - 1);
  EXPECT_THAT(refusal(2), StartsWith("GB-J403"));
  EXPECT_THAT(refusal(2), HasSubstr("says 5"));
  EXPECT_EQ(cluster.status("train").jobs(0).state(), "running");
}

// Whoever gives up while it waits takes nobody of the running job with it.
TEST_F(StartedAgain, ARankThatGivesUpIsForgotten) {
  cluster.clear();
  cluster.join(1, "train", 0, 2);
  v1::AgentMessage gone;
  gone.mutable_rank_left()->set_job("train");
  gone.mutable_rank_left()->set_rank(0);
  cluster.send(1, gone);
  EXPECT_EQ(cluster.status("train").jobs(0).state(), "running");
  cluster.advance(2 * kWaitingJoinPatience);
  EXPECT_THAT(cluster.inbox[1], IsEmpty());
}

// It has died, and its successor has come already.
TEST_F(StartedAgain, TheSuccessorOfOneThatGivesUpStillWaits) {
  cluster.clear();
  cluster.join(1, "train", 0, 1);
  v1::AgentMessage gone;
  gone.mutable_rank_left()->set_job("train");
  gone.mutable_rank_left()->set_join(cluster.joins);
  cluster.join(1, "train", 0, 1);
  cluster.send(1, gone);
  cluster.left(1, first, 0, true);
  cluster.left(2, first, 1, true);
  ASSERT_TRUE(cluster.last(1).has_job_started());
  EXPECT_EQ(cluster.last(1).job_started().members(0).join(), cluster.joins);
}

// It ended before its agent had read the refusal.
TEST_F(StartedAgain, ARefusedRankThatEndsTakesNobodyOfTheRunningJobWithIt) {
  cluster.join(1, "train", 0, 2);
  cluster.advance(kWaitingJoinPatience);
  EXPECT_THAT(refusal(1), StartsWith("GB-J402"));
  cluster.left(1, 0, 0, false, "its process ended", "train");
  EXPECT_EQ(cluster.status("train").jobs(0).state(), "running");
}

// A rank of the attempt before has died while others still joined, and its agent has not said so.
TEST_F(StartedAgain, AJobThatStartsMakesRoomForARankThatHasDied) {
  cluster.join(1, "again", 0, 2);
  const uint64_t before = cluster.joins;
  cluster.clear();
  cluster.join(2, "again", 0, 2);
  cluster.advance(kWaitingJoinPatience / 2);
  EXPECT_THAT(cluster.inbox[2], IsEmpty());
  v1::AgentMessage gone;
  gone.mutable_rank_left()->set_job("again");
  gone.mutable_rank_left()->set_join(before);
  cluster.send(1, gone);
  cluster.join(1, "again", 1, 2);
  ASSERT_TRUE(cluster.last(2).has_job_started());
  EXPECT_EQ(cluster.last(1).job_started().job_id(), cluster.last(2).job_started().job_id());
}

TEST_F(StartedAgain, AJobThatStartsMayGetAnotherSize) {
  cluster.join(1, "again", 1, 3);
  cluster.join(2, "again", 0, 1);
  cluster.left(1, 0, 1, false, "its process ended", "again");
  EXPECT_TRUE(cluster.last(2).has_job_started());
}

TEST_F(StartedAgain, ARankThatIsTakenIsRefusedInTheEnd) {
  cluster.join(1, "again", 0, 2);
  cluster.join(2, "again", 0, 2);
  cluster.advance(kWaitingJoinPatience);
  EXPECT_THAT(refusal(2), StartsWith("GB-J402"));
}

TEST_F(StartedAgain, NoMoreWaitThanThereIsRoomFor) {
  cluster.clear();
  for (size_t i = 0; i < kWaitingJoinsMax; ++i) cluster.join(1, "train", 0, 2);
  EXPECT_THAT(cluster.inbox[1], IsEmpty());
  cluster.join(1, "train", 0, 2);
  EXPECT_THAT(refusal(1), StartsWith("GB-J402"));
}

}  // namespace
}  // namespace gradbus
