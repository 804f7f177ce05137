// A job's beginning: who may join, what all are told, what happens when somebody does not come.
#include <gmock/gmock.h>

#include "tests/unit/server/coordinator/cluster.h"

namespace gradbus {
namespace {

using test::Cluster;
using test::error_of;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

class Start : public testing::Test {
 protected:
  Start() {
    cluster.hello(1, "node-a", kControlProtocol, {{"tcp", "10.0.0.1:5"}, {"rdma", "a"}});
    cluster.hello(2, "node-b", kControlProtocol, {{"tcp", "10.0.0.2:6"}, {"rdma", "b"}});
    cluster.clear();
  }

  std::string last_error(uint64_t agent) { return error_of(cluster.last(agent)); }

  Cluster cluster;
};

TEST_F(Start, EveryAgentGetsTheSameMembership) {
  cluster.join(2, "train", 3, 4);
  cluster.join(2, "train", 0, 4);
  cluster.join(1, "train", 2, 4);
  EXPECT_THAT(cluster.inbox, IsEmpty());
  cluster.join(1, "train", 1, 4);
  ASSERT_THAT(cluster.inbox[1], SizeIs(1));
  ASSERT_THAT(cluster.inbox[2], SizeIs(1));
  const v1::JobStarted& started = cluster.inbox[1][0].job_started();
  EXPECT_EQ(started.SerializeAsString(), cluster.inbox[2][0].job_started().SerializeAsString());
  EXPECT_EQ(started.job(), "train");
  EXPECT_NE(started.job_id(), 0u);
  EXPECT_NE(started.link_key(), 0u);
  EXPECT_EQ(started.epoch(), 1u);
  EXPECT_EQ(started.transport(), "tcp");
  ASSERT_EQ(started.agents_size(), 2);  // node-b holds rank 0
  EXPECT_EQ(started.agents(0).name(), "node-b");
  EXPECT_EQ(started.agents(0).address(), "10.0.0.2:6");
  EXPECT_EQ(started.agents(1).agent_id(), 1u);
  ASSERT_EQ(started.members_size(), 4);
  const uint32_t agent_index[] = {0, 1, 1, 0};
  const uint32_t local_rank[] = {0, 0, 1, 1};
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(started.members(rank).rank(), uint32_t(rank));
    EXPECT_EQ(started.members(rank).agent_index(), agent_index[rank]) << rank;
    EXPECT_EQ(started.members(rank).local_rank(), local_rank[rank]) << rank;
  }
}

TEST_F(Start, JobsHaveTheirOwnIdsAndKeys) {
  cluster.join(1, "a", 0, 1);
  cluster.join(1, "b", 0, 1);
  const auto& a = cluster.inbox[1].at(0).job_started();
  const auto& b = cluster.inbox[1].at(1).job_started();
  EXPECT_NE(a.job_id(), b.job_id());
  EXPECT_NE(a.link_key(), b.link_key());
}

TEST_F(Start, RanksGetASecretAndShardsDoNot) {
  cluster.shard(9, "shard");
  cluster.clear();
  cluster.join(1, "a", 0, 1);
  const std::string secret = cluster.inbox[1].at(0).job_started().secret();
  EXPECT_EQ(secret.size(), 32u);
  EXPECT_TRUE(cluster.inbox[9].at(0).job_started().secret().empty());
  cluster.join(1, "b", 0, 1);
  EXPECT_NE(cluster.inbox[1].at(1).job_started().secret(), secret);
}

TEST_F(Start, AJobBelongsToTheUserOfItsFirstRank) {
  cluster.user = {1000, "alice"};
  cluster.join(1, "train", 0, 2);
  cluster.user = {1001, "bob"};
  for (const uint64_t agent : {1, 2}) {
    cluster.join(agent, "train", 1, 2);
    EXPECT_THAT(last_error(agent), StartsWith("GB-J408"));
    EXPECT_THAT(last_error(agent), HasSubstr("belongs to alice (uid 1000)"));
    EXPECT_THAT(last_error(agent), HasSubstr("refused bob (uid 1001)"));
  }
  cluster.user = {0, "root"};
  cluster.join(2, "train", 1, 2);
  EXPECT_THAT(last_error(2), StartsWith("GB-J408"));
  cluster.user = {1000, ""};
  cluster.join(2, "train", 1, 2);
  ASSERT_TRUE(cluster.last(2).has_job_started());
  EXPECT_EQ(cluster.last(2).job_started().uid(), 1000u);
  cluster.user = {1001, "bob"};
  cluster.join(2, "train", 1, 2);
  EXPECT_THAT(last_error(2), StartsWith("GB-J408")) << "at once, not after some patience";
}

TEST_F(Start, BadNumbersAndNamesAreRefused) {
  struct Row {
    std::string job;
    uint32_t rank, world;
    const char* id;
  };
  const Row rows[] = {{"j", 0, 0, "GB-J401"},
                      {"j", 4, 4, "GB-J401"},
                      {"j", 0, 4097, "GB-J401"},
                      {"j", 0xffffffff, 0xffffffff, "GB-J401"},
                      {"", 0, 1, "GB-D602"},
                      {"a\tb", 0, 1, "GB-D602"},
                      {std::string(128, 'j'), 0, 1, "GB-D602"},
                      {std::string(1 << 20, 'j'), 0, 1, "GB-D602"}};
  for (const Row& row : rows) {
    cluster.clear();
    cluster.join(1, row.job, row.rank, row.world);
    ASSERT_THAT(cluster.inbox[1], SizeIs(1));
    EXPECT_THAT(last_error(1), StartsWith(row.id));
    EXPECT_LT(cluster.inbox[1][0].ByteSizeLong(), 2048u);
    EXPECT_EQ(cluster.inbox[1][0].join_refused().rank(), row.rank);
  }
  EXPECT_EQ(cluster.status().jobs_size(), 0);
}

TEST_F(Start, ARankIsTakenByTheFirst) {
  cluster.join(1, "train", 0, 2);
  cluster.join(2, "train", 0, 2);
  cluster.advance(kWaitingJoinPatience);
  EXPECT_THAT(cluster.inbox[1], IsEmpty());
  EXPECT_THAT(last_error(2), StartsWith("GB-J402"));
  EXPECT_THAT(last_error(2), HasSubstr("rank 0 (node-a, pid 100)"));
  cluster.join(2, "train", 1, 2);
  EXPECT_TRUE(cluster.last(1).has_job_started());
}

TEST_F(Start, AnotherWorldSizeIsRefusedNamingBoth) {
  cluster.join(1, "train", 0, 4);
  cluster.join(2, "train", 1, 8);
  cluster.advance(kWaitingJoinPatience);
  EXPECT_THAT(cluster.inbox[1], IsEmpty());
  EXPECT_THAT(last_error(2), StartsWith("GB-J403"));
  EXPECT_THAT(last_error(2), HasSubstr("world size 4"));
  EXPECT_THAT(last_error(2), HasSubstr("says 8"));
}

TEST_F(Start, ANodeHasAtMost128RanksOfAJob) {
  for (uint32_t rank = 0; rank < kLocalRanksMax; ++rank) cluster.join(1, "big", rank, 200);
  EXPECT_THAT(cluster.inbox[1], IsEmpty());
  cluster.join(1, "big", kLocalRanksMax, 200);
  EXPECT_THAT(last_error(1), StartsWith("GB-A304"));
}

TEST_F(Start, TheCommonTransportIsChosen) {
  cluster.hello(3, "node-c", kControlProtocol, {{"rdma", "c"}});
  cluster.join(1, "train", 0, 2);
  cluster.join(3, "train", 1, 2);
  EXPECT_EQ(cluster.last(1).job_started().transport(), "rdma");
  EXPECT_EQ(cluster.last(1).job_started().agents(1).address(), "c");
}

TEST_F(Start, NoCommonTransportRefusesAll) {
  cluster.hello(3, "node-c", kControlProtocol, {{"ipx", "c"}});
  cluster.join(1, "train", 0, 2);
  cluster.join(3, "train", 1, 2);
  for (const uint64_t agent : {1, 3}) {
    EXPECT_THAT(last_error(agent), StartsWith("GB-D605"));
    EXPECT_THAT(last_error(agent), HasSubstr("node-a has rdma, tcp; node-c has ipx"));
  }
}

TEST_F(Start, OneAgentAloneNeedsNoTransport) {
  cluster.hello(3, "node-c", kControlProtocol, {});
  cluster.join(3, "solo", 0, 1);
  EXPECT_TRUE(cluster.last(3).has_job_started());
}

TEST_F(Start, TheTimeoutNamesWhoIsMissing) {
  cluster.join(1, "train", 0, 4, 1000);
  cluster.join(1, "train", 1, 4, 3000);  // the largest counts, from the first join on
  cluster.advance(1 * kSecond);
  cluster.join(2, "train", 3, 4, 2000);
  cluster.advance(1900 * kMillisecond);
  EXPECT_THAT(cluster.inbox, IsEmpty());
  cluster.advance(100 * kMillisecond);
  ASSERT_THAT(cluster.inbox[1], SizeIs(2));
  ASSERT_THAT(cluster.inbox[2], SizeIs(1));
  EXPECT_THAT(last_error(2), StartsWith("GB-J404"));
  EXPECT_THAT(last_error(2),
              HasSubstr("3 of 4 ranks joined job \"train\" within 3.0 s; missing: 2"));
  EXPECT_EQ(cluster.status().jobs(0).state(), "failed");
}

TEST_F(Start, NoTimeoutMeansAMinuteAndAbsurdOnesEndToo) {
  cluster.join(1, "a", 0, 2, 0);
  cluster.join(1, "b", 0, 2, ~uint64_t{0});
  cluster.advance(59 * kSecond);
  EXPECT_THAT(cluster.inbox[1], IsEmpty());
  cluster.advance(1 * kSecond);
  EXPECT_THAT(cluster.inbox[1], SizeIs(1));
  cluster.now += 24 * 3600 * kSecond;
  cluster.coordinator.tick(cluster.now);
  cluster.collect();
  EXPECT_THAT(cluster.inbox[1], SizeIs(2));
}

TEST_F(Start, ARankThatDiesBeforeTheStartEndsTheWaitOfTheOthers) {
  for (const bool clean : {false, true}) {
    cluster.clear();
    cluster.join(1, "train", 0, 3);
    cluster.join(2, "train", 1, 3);
    cluster.left(2, 0, 1, clean, "killed by signal 9", "train");
    ASSERT_THAT(cluster.inbox[1], SizeIs(1));
    EXPECT_THAT(last_error(1), StartsWith("GB-P101"));
    EXPECT_THAT(last_error(1), HasSubstr("rank 1 (node-b, pid 101)"));
    EXPECT_THAT(last_error(1), HasSubstr("killed by signal 9"));
    EXPECT_THAT(cluster.inbox[2], IsEmpty());
  }
}

TEST_F(Start, AnAgentThatDiesBeforeTheStartEndsTheWaitOfTheOthers) {
  cluster.join(1, "train", 0, 3);
  cluster.join(2, "train", 1, 3);
  cluster.drop(2);
  EXPECT_THAT(last_error(1), StartsWith("GB-P104"));
  EXPECT_THAT(last_error(1), HasSubstr("lost rank 1: agent node-b"));
}

// As gradbus.elastic does it: node-b's agent dies and comes back, its ranks a little later.
TEST_F(Start, TheRanksOfAJobThatLostAnAgentMayJoinAgain) {
  cluster.join(1, "train", 0, 2);
  cluster.join(2, "train", 1, 2);
  const v1::JobStarted first = cluster.last(1).job_started();
  cluster.drop(2);
  EXPECT_THAT(last_error(1), StartsWith("GB-P104"));
  cluster.join(1, "train", 0, 2);  // before the agent is back: it waits
  cluster.hello(3, "node-b", kControlProtocol, {{"tcp", "10.0.0.2:7"}});
  cluster.left(1, first.job_id(), 0, true, "");  // a late message about the old job
  EXPECT_FALSE(cluster.last(1).has_job_started());
  cluster.join(3, "train", 1, 2);
  const v1::JobStarted second = cluster.last(1).job_started();
  EXPECT_EQ(cluster.last(3).job_started().job_id(), second.job_id());
  EXPECT_NE(second.job_id(), first.job_id());
  EXPECT_NE(second.link_key(), first.link_key());
  EXPECT_THAT(second.agents(1).address(), HasSubstr("10.0.0.2:7"));
}

// An agent that dies again while ranks come back sends those that wait away, to come once more.
TEST_F(Start, ALossWhileRanksJoinAgainIsToldToThoseThatWait) {
  cluster.join(1, "train", 0, 3);
  cluster.join(2, "train", 1, 3);
  cluster.drop(2);
  EXPECT_THAT(last_error(1), StartsWith("GB-P104"));
  cluster.hello(3, "node-b");
  cluster.join(1, "train", 0, 3);
  cluster.join(3, "train", 1, 3);
  cluster.join(3, "train", 2, 3);
  EXPECT_TRUE(cluster.last(1).has_job_started());
}

TEST_F(Start, TheNameOfAFailedJobIsFree) {
  cluster.join(1, "train", 0, 2);
  cluster.left(1, 0, 0, false, "", "train");
  cluster.join(2, "train", 0, 1);
  EXPECT_TRUE(cluster.last(2).has_job_started());
  EXPECT_EQ(cluster.status("train").jobs_size(), 2);
}

TEST_F(Start, LeavingByNameAfterTheStartCrossedIt) {
  cluster.join(1, "train", 0, 2);
  cluster.join(2, "train", 1, 2);
  cluster.clear();
  cluster.left(2, 0, 1, false, "", "train");
  EXPECT_TRUE(cluster.last(1).has_job_failed());
  cluster.left(1, 0, 0, true, "", "train");  // crossed the failure: no mistake
  EXPECT_EQ(cluster.coordinator.warnings(), 0u);
}

TEST_F(Start, OnlyTheOwnerSpeaksForARank) {
  cluster.join(1, "train", 0, 2);
  cluster.left(2, 0, 0, false, "", "train");
  EXPECT_EQ(cluster.coordinator.warnings(), 1u);
  cluster.join(2, "train", 1, 2);
  EXPECT_TRUE(cluster.last(1).has_job_started());
}

TEST_F(Start, NeverMoreJobsThanTheMaximum) {
  for (size_t i = 0; i < kLiveJobsMax; ++i) cluster.join(1, "j" + std::to_string(i), 0, 2);
  EXPECT_THAT(cluster.inbox[1], IsEmpty());
  cluster.join(1, "one more", 0, 2);
  EXPECT_THAT(last_error(1), StartsWith("GB-A304"));
}

}  // namespace
}  // namespace gradbus
