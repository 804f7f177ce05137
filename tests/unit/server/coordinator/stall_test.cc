// Ranks that wait: who is named, which waits can never end, and which only look like it.
#include <gmock/gmock.h>

#include "tests/unit/server/coordinator/cluster.h"

namespace gradbus {
namespace {

using test::Cluster;
using test::error_of;
using test::make_spec;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

class Stall : public testing::Test {
 protected:
  void start(uint32_t ranks) {
    world = ranks;
    job = cluster.start_job("train", world);
  }
  void ask(uint32_t rank, const std::string& name, uint64_t count = 100) {
    cluster.register_tensors(Cluster::agent_of(rank), job, rank, {make_spec(name, count)});
  }
  void wait(uint32_t rank, const std::string& name, uint64_t round, uint64_t ms) {
    cluster.blocked(Cluster::agent_of(rank), job, rank, name, round, ms);
  }
  void wait_in_background(uint32_t rank, const std::string& name, uint64_t round, uint64_t ms) {
    cluster.blocked(Cluster::agent_of(rank), job, rank, name, round, ms, true);
  }
  // Both agents answer; `missing` are the ranks that have not started the round.
  void answer(const std::string& name, uint64_t round, const RankSet& missing) {
    for (const uint64_t agent : {1, 2}) {
      std::vector<uint32_t> here, not_here;
      for (uint32_t rank = 0; rank < world; ++rank) {
        if (Cluster::agent_of(rank) != agent) continue;
        (missing.contains(rank) ? not_here : here).push_back(rank);
      }
      cluster.report(agent, job, name, round, here, not_here);
    }
  }
  void ready(const std::string& name) { cluster.make_ready(job, world, make_spec(name, 100)); }
  void tick() { cluster.advance(100 * kMillisecond); }

  // The only error that agent 1 has got since the last look; "" when none.
  std::string verdict() {
    tick();
    std::string text;
    for (const auto& message : cluster.inbox[1]) {
      if (error_of(message).empty()) continue;
      EXPECT_EQ(text, "");
      text = error_of(message);
    }
    cluster.clear();
    return text;
  }
  const v1::StallNotice& notice(uint64_t agent) { return cluster.last(agent).stall_notice(); }

  Cluster cluster;
  uint32_t world = 0;
  uint64_t job = 0;
};

TEST_F(Stall, ARoundIsAskedOfAllAgentsAndReportedToAll) {
  start(4);
  ready("layer3.w");
  for (uint32_t rank = 0; rank < 3; ++rank) wait(rank, "layer3.w", 812, 10'000);
  for (const uint64_t agent : {1, 2}) {
    ASSERT_THAT(cluster.inbox[agent], SizeIs(1));  // asked once, not once per rank
    const auto& query = cluster.inbox[agent][0].progress_query();
    EXPECT_EQ(query.job_id(), job);
    EXPECT_EQ(query.tensor(), "layer3.w");
    EXPECT_EQ(query.round(), 812u);
  }
  cluster.clear();
  answer("layer3.w", 812, {3});
  for (const uint64_t agent : {1, 2}) {
    ASSERT_THAT(cluster.inbox[agent], SizeIs(1));
    EXPECT_EQ(notice(agent).text(),
              "rank 3 (node-b) has not started \"layer3.w\" round 812; waiting: ranks 0, 1, 2 for "
              "10.0 s");
  }
  EXPECT_EQ(cluster.status().jobs(0).stall(), notice(1).text());
  EXPECT_EQ(verdict(), "");
}

TEST_F(Stall, ItIsAskedAgainWithEachReportAndForgottenWithout) {
  start(2);
  ready("t");
  wait(0, "t", 5, 1000);
  answer("t", 5, {1});
  cluster.clear();
  cluster.advance(1 * kSecond);
  wait(0, "t", 5, 2000);
  EXPECT_TRUE(cluster.inbox[2].at(0).has_progress_query());
  answer("t", 5, {1});
  EXPECT_THAT(notice(2).text(), HasSubstr("for 2.0 s"));
  cluster.advance(3 * kSecond);
  EXPECT_EQ(cluster.status().jobs(0).stall(), "");
}

TEST_F(Stall, MissingRanksAreNamedByNode) {
  start(4);
  ready("t");
  wait(0, "t", 1, 1000);
  answer("t", 1, {1, 2, 3});
  EXPECT_THAT(notice(1).text(),
              StartsWith("rank 2 (node-a), ranks 1, 3 (node-b) have not started"));
}

TEST_F(Stall, DataOnTheWayIsSaid) {
  start(2);
  ready("t");
  wait(0, "t", 1, 1000);
  answer("t", 1, {});
  EXPECT_EQ(
      notice(1).text(),
      "every rank has started \"t\" round 1, its data is on the way; waiting: rank 0 for 1.0 s; "
      "not waiting, so computing or stopped: rank 1 (node-b)");
}

TEST_F(Stall, ARankThatGaveUpAndEndedIsNotSaidToCompute) {
  start(4);
  ready("t");
  wait(0, "t", 1, 3000);
  wait(3, "t", 1, 3000);
  cluster.left(2, job, 3, true);
  answer("t", 1, {});
  EXPECT_EQ(notice(1).text(),
            "every rank has started \"t\" round 1, its data is on the way; waiting: rank 0 for "
            "3.0 s; not waiting, so computing or stopped: rank 2 (node-a), rank 1 (node-b); ended: "
            "rank 3 (node-b)");
}

TEST_F(Stall, ARegistrationIsReportedWithoutAsking) {
  start(4);
  ask(0, "t");
  ask(2, "t");
  wait(0, "t", 0, 1000);
  EXPECT_EQ(notice(2).text(),
            "ranks 1, 3 (node-b) have not registered \"t\"; waiting: rank 0 for 1.0 s");
}

TEST_F(Stall, AReportAboutForeignRanksChangesNothing) {
  start(2);
  ready("t");
  wait(0, "t", 1, 1000);
  cluster.report(1, job, "t", 1, {}, {1, 77, 4'000'000'000});  // rank 1 is on agent 2
  cluster.report(2, job, "t", 1, {1}, {});
  EXPECT_THAT(notice(1).text(), StartsWith("every rank has started"));
}

// ---- P105: waiting for a rank that left ----

TEST_F(Stall, ARankThatLeftWithoutRegistering) {
  start(3);
  ask(0, "t");
  ask(1, "t");
  cluster.left(1, job, 2, true);
  EXPECT_EQ(verdict(), "");
  wait(0, "t", 0, 1000);
  const std::string text = verdict();
  EXPECT_THAT(text, StartsWith("GB-P105"));
  EXPECT_THAT(text, HasSubstr("rank 2 (node-a) ended, but rank 0 (node-a) still waits for the "
                              "registration of \"t\""));
  EXPECT_EQ(cluster.status().jobs(0).state(), "failed");
}

TEST_F(Stall, ARankThatLeftAfterOthersBegan) {
  start(2);
  ask(0, "t");
  wait(0, "t", 0, 1000);
  EXPECT_EQ(verdict(), "");
  cluster.left(2, job, 1, true);
  EXPECT_THAT(verdict(), StartsWith("GB-P105"));
}

TEST_F(Stall, ARankThatLeftWithoutStartingTheRound) {
  start(3);
  ready("t");
  cluster.left(2, job, 1, true);
  wait(0, "t", 7, 1000);
  answer("t", 7, {1});
  const std::string text = verdict();
  EXPECT_THAT(text, StartsWith("GB-P105"));
  EXPECT_THAT(text, HasSubstr("rank 1 (node-b) ended, but rank 0 (node-a) still waits for \"t\" "
                              "round 7"));
}

TEST_F(Stall, ARankThatLeftAfterDoingItsPartIsNotBlamed) {
  start(3);
  ready("t");
  wait(0, "t", 7, 1000);
  answer("t", 7, {1, 2});  // this answer is older than what rank 1 did next
  cluster.advance(100 * kMillisecond);
  cluster.left(2, job, 1, true);
  EXPECT_EQ(verdict(), "");
  cluster.advance(1 * kSecond);
  wait(0, "t", 7, 2000);
  answer("t", 7, {2});
  EXPECT_EQ(verdict(), "");
}

TEST_F(Stall, RanksThatLeftWithTheirAgentOweTheRound) {
  start(2);
  ready("t");
  cluster.left(2, job, 1, true);
  cluster.drop(2);
  EXPECT_EQ(verdict(), "");
  wait(0, "t", 7, 1000);
  cluster.report(1, job, "t", 7, {0}, {});
  EXPECT_THAT(verdict(), StartsWith("GB-P105"));
}

// ---- O902: another version of a tensor others still wait for ----

TEST_F(Stall, ARankThatRegistersANewVersionWhileOthersWaitForTheOld) {
  start(2);
  ready("t");
  ask(0, "t", 101);
  wait(0, "t", 0, 1000);
  wait(1, "t", 5, 1000);
  EXPECT_EQ(verdict(), "");  // not proven before the agents have answered
  answer("t", 5, {0});
  const std::string text = verdict();
  EXPECT_THAT(text, StartsWith("GB-O902"));
  EXPECT_THAT(text, HasSubstr("rank 0 registered f32[101] all_reduce sum, rank 1 still in round 5 "
                              "of f32[100] all_reduce sum"));
}

TEST_F(Stall, ANewVersionWhileTheOldRoundsDataIsOnTheWayIsFine) {
  start(2);
  ready("t");
  ask(0, "t", 101);
  wait(0, "t", 0, 5000);
  wait(1, "t", 5, 5000);
  answer("t", 5, {});
  EXPECT_EQ(verdict(), "");
}

// ---- O903: everybody waits for everybody ----

TEST_F(Stall, DifferentNamesOnAllRanksAreRefusedAndTheJobGoesOn) {
  start(3);
  ask(0, "a");
  ask(1, "b");
  ask(2, "b");
  wait(0, "a", 0, 2000);
  wait(1, "b", 0, 2000);
  tick();
  wait(2, "b", 0, 2000);
  tick();
  std::map<std::string, std::set<uint32_t>> refused;
  for (const auto& message : cluster.inbox[2]) {
    if (!message.has_tensor_refused()) continue;
    const auto& ranks = message.tensor_refused().ranks();
    refused[message.tensor_refused().name()].insert(ranks.begin(), ranks.end());
    EXPECT_THAT(error_of(message), StartsWith("GB-O903"));
    EXPECT_THAT(error_of(message), HasSubstr("rank 0 waits for \"a\", ranks 1, 2 wait for \"b\""));
  }
  EXPECT_EQ(refused, (std::map<std::string, std::set<uint32_t>>{{"a", {0}}, {"b", {1, 2}}}));
  EXPECT_EQ(cluster.status().jobs(0).state(), "running");
  cluster.clear();
  for (uint32_t rank = 0; rank < 3; ++rank) ask(rank, "a");
  EXPECT_TRUE(cluster.inbox[1].at(0).has_tensors_ready());
}

TEST_F(Stall, ARankThatStillWorksMayYetRegister) {
  start(3);
  ask(0, "a");
  ask(1, "b");
  wait(0, "a", 0, 60'000);
  wait(1, "b", 0, 60'000);
  EXPECT_EQ(verdict(), "");
}

TEST_F(Stall, AShortWaitIsNotADeadlock) {
  start(2);
  ask(0, "a");
  ask(1, "b");
  wait(0, "a", 0, 1000);
  wait(1, "b", 0, 1000);
  EXPECT_EQ(verdict(), "");
}

// Rank 0 may have advanced since it said so.
TEST_F(Stall, OnlyTheTimeThatARankHasReportedCounts) {
  start(2);
  ready("a");
  ready("b");
  wait(0, "a", 9, 1100);
  cluster.advance(1000 * kMillisecond);
  wait(1, "b", 9, 3000);
  wait(1, "b", 9, 3000);
  answer("a", 9, {1});
  answer("b", 9, {0});
  EXPECT_EQ(verdict(), "");
  wait(0, "a", 9, 2200);
  answer("a", 9, {1});
  EXPECT_THAT(verdict(), StartsWith("GB-O903"));
}

TEST_F(Stall, ACycleOfRoundsEndsTheJob) {
  start(2);
  ready("a");
  ready("b");
  wait(0, "a", 9, 3000);
  wait(1, "b", 9, 3000);
  answer("a", 9, {1});
  EXPECT_EQ(verdict(), "");
  answer("b", 9, {0});
  const std::string text = verdict();
  EXPECT_THAT(text, StartsWith("GB-O903"));
  EXPECT_THAT(text, HasSubstr("rank 0 waits for \"a\" round 9, rank 1 waits for \"b\" round 9"));
  EXPECT_EQ(cluster.status().jobs(0).state(), "failed");
}

// Two threads wait for messages, and the loops of both ranks compute.
TEST_F(Stall, WaitsInTheBackgroundAreNoCycle) {
  start(2);
  ready("a");
  ready("b");
  wait_in_background(0, "a", 9, 60'000);
  wait_in_background(1, "b", 9, 60'000);
  answer("a", 9, {1});
  answer("b", 9, {0});
  EXPECT_EQ(verdict(), "");
  wait(0, "a", 9, 3000);
  answer("a", 9, {1});
  EXPECT_EQ(verdict(), "");
  wait(1, "b", 9, 3000);
  answer("b", 9, {0});
  EXPECT_THAT(verdict(), StartsWith("GB-O903"));
}

// What rank 0's other thread waits for is on the way. Then it may begin what rank 1 waits for.
TEST_F(Stall, AWaitInTheBackgroundThatEndsMayEndTheOthers) {
  start(2);
  for (const char* name : {"a", "b", "c"}) ready(name);
  wait(0, "a", 9, 3000);
  wait(1, "b", 9, 3000);
  wait_in_background(0, "c", 9, 3000);
  answer("a", 9, {1});
  answer("b", 9, {0});
  answer("c", 9, {});
  EXPECT_EQ(verdict(), "");
}

TEST_F(Stall, ARankThatLeftIsNamedToWhoWaitsInTheBackground) {
  start(2);
  ready("a");
  cluster.left(2, job, 1, true);
  wait_in_background(0, "a", 9, 3000);
  answer("a", 9, {1});
  EXPECT_THAT(verdict(), StartsWith("GB-P105"));
}

TEST_F(Stall, ARoundAndARegistrationInACycleEndTheJob) {
  start(2);
  ready("a");
  ask(1, "b");
  wait(0, "a", 9, 3000);
  wait(1, "b", 0, 3000);
  answer("a", 9, {1});
  EXPECT_THAT(verdict(), StartsWith("GB-O903"));
}

// Rank 1 did its part of "a" and then waits for "b"; rank 0 has its result and computes. The answer
// about "a" is older than rank 1's wait, so it proves nothing.
TEST_F(Stall, AnOldAnswerDoesNotMakeACycle) {
  start(2);
  ready("a");
  ready("b");
  wait(0, "a", 9, 8000);
  answer("a", 9, {1});
  cluster.advance(2100 * kMillisecond);
  wait(1, "b", 9, 2000);
  answer("b", 9, {0});
  EXPECT_EQ(verdict(), "");
}

TEST_F(Stall, RegisteringIsASignOfLife) {
  start(2);
  ask(0, "a");
  ask(1, "b");
  wait(0, "a", 0, 3000);
  ask(0, "c");
  wait(1, "b", 0, 3000);
  EXPECT_EQ(verdict(), "");
}

TEST_F(Stall, AWaitWhoseAnswerIsOnTheWireIsIgnored) {
  start(2);
  ready("a");
  wait(0, "a", 0, 3000);
  wait(1, "a", 0, 3000);
  EXPECT_EQ(verdict(), "");
  EXPECT_EQ(cluster.coordinator.warnings(), 0u);
}

TEST_F(Stall, NonsenseIsCountedAndIgnored) {
  start(2);
  wait(0, "never registered", 3, 1000);
  cluster.blocked(2, job, 0, "t", 0, 1000);  // not its rank
  cluster.blocked(1, job + 1, 0, "t", 0, 1000);
  cluster.report(1, job + 1, "t", 1, {}, {});
  EXPECT_EQ(cluster.coordinator.warnings(), 4u);
  cluster.report(1, job, "unasked", 1, {0}, {});
  EXPECT_THAT(cluster.inbox[1], IsEmpty());
}

// Its wait was reported before, and the answers of the agents come after.
TEST_F(Stall, ATensorThatRetiresEndsTheWaitsForItsRounds) {
  start(2);
  const uint32_t id = cluster.make_ready(job, world, make_spec("t", 100));
  ask(0, "t", 101);
  wait(0, "t", 0, 1000);
  wait(1, "t", 5, 1000);
  for (const uint32_t rank : {0U, 1U}) {
    v1::AgentMessage message;
    message.mutable_unregister_tensors()->set_job_id(job);
    message.mutable_unregister_tensors()->set_rank(rank);
    message.mutable_unregister_tensors()->add_tensors(id);
    cluster.send(Cluster::agent_of(rank), message);
  }
  answer("t", 5, {0});
  EXPECT_EQ(verdict(), "");
}

TEST_F(Stall, AbsurdWaitsDoNotOverflow) {
  start(2);
  ask(0, "a");
  wait(0, "a", 0, ~uint64_t{0});
  EXPECT_THAT(notice(1).text(), HasSubstr("for 604800 s"));
}

}  // namespace
}  // namespace gradbus
