// How jobs end, and what is shown of them.
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

class End : public testing::Test {
 protected:
  End() { job = cluster.start_job("train", 2); }

  void count(uint64_t agent, uint32_t rank, uint64_t bytes, uint64_t wait_ns, uint64_t step) {
    v1::AgentMessage message;
    auto* counters = message.mutable_heartbeat()->add_jobs();
    counters->set_job_id(job);
    counters->set_sent_bytes(10 * agent);
    counters->set_received_bytes(agent);
    auto* of_rank = counters->add_ranks();
    of_rank->set_rank(rank);
    of_rank->set_bytes(bytes);
    of_rank->set_operations(bytes / 100);
    of_rank->set_wait_ns(wait_ns);
    of_rank->set_step(step);
    cluster.send(agent, message);
  }
  v1::JobStatus shown() { return cluster.status("train").jobs(0); }

  Cluster cluster;
  uint64_t job = 0;
};

TEST_F(End, DoneWhenAllRanksHaveLeft) {
  cluster.left(1, job, 0, true);
  EXPECT_EQ(shown().state(), "running");
  EXPECT_EQ(shown().ranks(0).state(), "left");
  cluster.left(2, job, 1, true);
  EXPECT_EQ(shown().state(), "done");
  for (const uint64_t agent : {1, 2}) {
    ASSERT_THAT(cluster.inbox[agent], SizeIs(1));
    EXPECT_EQ(cluster.inbox[agent][0].job_ended().job_id(), job);
  }
  cluster.clear();
  cluster.drop(2);  // after the end nobody minds
  EXPECT_EQ(shown().state(), "done");
  EXPECT_THAT(cluster.inbox[1], IsEmpty());
}

TEST_F(End, ADeathFailsTheJobNamingRankNodeDetailAndStep) {
  count(2, 1, 100, 0, 812);
  cluster.left(2, job, 1, false, "killed by signal 9");
  for (const uint64_t agent : {1, 2}) {
    ASSERT_THAT(cluster.inbox[agent], SizeIs(1));
    const std::string text = error_of(cluster.inbox[agent][0]);
    EXPECT_THAT(text, StartsWith("GB-P101"));
    EXPECT_THAT(text, HasSubstr("rank 1 (node-b, pid 101) died: killed by signal 9, at step 812"));
  }
  EXPECT_EQ(shown().state(), "failed");
  EXPECT_EQ(shown().ranks(1).state(), "lost");
  EXPECT_EQ(shown().error().code(), uint32_t(Code::kPeerLost));
}

TEST_F(End, AJobFailsOnce) {
  cluster.left(2, job, 1, false);
  cluster.left(1, job, 0, false);
  cluster.drop(2);
  EXPECT_THAT(cluster.inbox[1], SizeIs(1));
  EXPECT_EQ(cluster.coordinator.warnings(), 0u);
}

TEST_F(End, AnAgentsFailureIsPassedOnToAll) {
  v1::AgentMessage message;
  message.mutable_job_failure()->set_job_id(job);
  message.mutable_job_failure()->mutable_error()->set_code(uint32_t(Code::kCorrupt));
  message.mutable_job_failure()->mutable_error()->set_message("GB-S210 SHM_CORRUPT: x | next: y");
  cluster.send(1, message);
  EXPECT_EQ(cluster.inbox[2].at(0).job_failed().error().code(), uint32_t(Code::kCorrupt));
  EXPECT_EQ(error_of(cluster.inbox[2].at(0)), "GB-S210 SHM_CORRUPT: x | next: y");
}

TEST_F(End, AFailureWithoutAReasonIsStillOne) {
  v1::AgentMessage message;
  message.mutable_job_failure()->set_job_id(job);
  message.mutable_job_failure()->mutable_error()->set_code(999);
  message.mutable_job_failure()->mutable_error()->set_message("boom\n" + std::string(5000, 'x'));
  cluster.send(1, message);
  const std::string text = error_of(cluster.inbox[2].at(0));
  EXPECT_THAT(text, StartsWith("GB-D602"));
  EXPECT_THAT(text, HasSubstr("node-a ended the job without a valid reason: boom?"));
  EXPECT_LT(text.size(), 1024u);
}

TEST_F(End, OnlyMembersMayFailAJob) {
  cluster.hello(3, "node-c");
  v1::AgentMessage message;
  message.mutable_job_failure()->set_job_id(job);
  cluster.send(3, message);
  EXPECT_EQ(shown().state(), "running");
  EXPECT_EQ(cluster.coordinator.warnings(), 1u);
}

TEST_F(End, AnAdministratorStopsAJob) {
  v1::StopJobRequest request;
  request.set_job("train");
  request.set_reason("maintenance, asked by eve");
  request.mutable_caller();
  EXPECT_EQ(cluster.coordinator.stop_job(request, "here", cluster.now).error().code(), 0u);
  cluster.collect();
  EXPECT_THAT(error_of(cluster.inbox[2].at(0)), StartsWith("GB-J405"));
  EXPECT_THAT(error_of(cluster.inbox[2].at(0)), HasSubstr("maintenance, asked by eve"));
  const auto again = cluster.coordinator.stop_job(request, "here", cluster.now);
  EXPECT_THAT(again.error().message(), StartsWith("GB-J406"));
}

TEST_F(End, OnlyTheOwnerAndRootStopAJob) {
  cluster.user = {1000, "alice"};
  cluster.join(1, "hers", 0, 2);
  v1::StopJobRequest request;
  request.set_job("hers");
  const auto answer = [&] {
    return cluster.coordinator.stop_job(request, "10.0.0.9", cluster.now).error().message();
  };
  EXPECT_THAT(answer(), StartsWith("GB-J408")) << "nobody is not root";
  request.mutable_caller()->set_uid(1001);
  request.mutable_caller()->set_user("bob");
  EXPECT_THAT(answer(), StartsWith("GB-J408"));
  EXPECT_THAT(answer(), HasSubstr("belongs to alice (uid 1000); refused bob (uid 1001)"));
  EXPECT_THAT(cluster.coordinator.take_notes().back(),
              HasSubstr("stop of job \"hers\" asked by bob (uid 1001), 10.0.0.9: refused"));
  request.mutable_caller()->set_uid(1000);
  EXPECT_EQ(answer(), "");
  cluster.join(1, "hers", 0, 2);
  request.mutable_caller()->set_uid(0);
  EXPECT_EQ(answer(), "");
}

TEST_F(End, StoppingAJobThatHasNotStartedRefusesItsRanks) {
  cluster.join(1, "early", 0, 2);
  v1::StopJobRequest request;
  request.set_job("early");
  request.mutable_caller();
  cluster.coordinator.stop_job(request, "here", cluster.now);
  cluster.collect();
  EXPECT_TRUE(cluster.last(1).has_join_refused());
  EXPECT_THAT(error_of(cluster.last(1)), StartsWith("GB-J405"));
}

TEST_F(End, CountersAndLatenessAreShown) {
  count(1, 0, 1000, 7'000'000, 3);
  count(2, 1, 1000, 9'000'000, 3);
  cluster.advance(500 * kMillisecond);
  count(1, 0, 3000, 7'000'000, 4);
  const v1::JobStatus status = shown();
  EXPECT_EQ(status.sent_bytes(), 30u);
  EXPECT_EQ(status.received_bytes(), 3u);
  EXPECT_EQ(status.transport(), "tcp");
  EXPECT_EQ(status.world_size(), 2u);
  EXPECT_EQ(status.age_ms(), 500u);
  ASSERT_EQ(status.ranks_size(), 2);
  EXPECT_EQ(status.ranks(0).agent(), "node-a");
  EXPECT_EQ(status.ranks(0).late_ns(), 2'000'000u);
  EXPECT_EQ(status.ranks(1).late_ns(), 0u);
  EXPECT_EQ(status.ranks(0).bytes_per_s(), 4000u);
  EXPECT_DOUBLE_EQ(status.ranks(0).operations_per_s(), 40.0);
  EXPECT_EQ(status.ranks(0).counters().step(), 4u);
}

TEST_F(End, CountersOfForeignRanksAreIgnored) {
  count(1, 1, 1000, 5, 3);
  EXPECT_EQ(shown().ranks(1).counters().bytes(), 0u);
  EXPECT_EQ(cluster.coordinator.warnings(), 1u);
}

TEST_F(End, ReadyTensorsAreListed) {
  cluster.make_ready(job, 2, make_spec("a", 7));
  cluster.register_tensors(1, job, 0, {make_spec("pending", 7)});
  ASSERT_EQ(shown().tensors_size(), 1);
  EXPECT_EQ(shown().tensors(0).name(), "a");
  EXPECT_EQ(cluster.status().agents(0).jobs(0), "train");
}

TEST_F(End, EndedJobsAreKeptForTenMinutesAndAHundredAtMost) {
  cluster.left(1, job, 0, false);
  for (int i = 0; i < 150; ++i) {
    cluster.advance(100 * kMillisecond);
    cluster.join(1, "j" + std::to_string(i), 0, 2);
    cluster.left(1, 0, 0, false, "", "j" + std::to_string(i));
  }
  cluster.advance(100 * kMillisecond);
  EXPECT_EQ(cluster.status().jobs_size(), int(kEndedJobsMax));
  EXPECT_EQ(cluster.status("j49").jobs_size(), 0);
  EXPECT_EQ(cluster.status("j50").jobs_size(), 1);
  cluster.advance(599 * kSecond);
  EXPECT_EQ(cluster.status("j149").jobs_size(), 1);
  cluster.advance(2 * kSecond);
  EXPECT_EQ(cluster.status().jobs_size(), 0);
}

}  // namespace
}  // namespace gradbus
