// The jobs of a node: how they fail, end and are forgotten, and what the coordinator is told.
#include "worker_agent/control/running_jobs.h"

#include <gmock/gmock.h>

#include "common/errors.h"
#include "tests/unit/worker_agent/control/fake_node.h"

namespace gradbus {
namespace {

using test::kJob;
using test::kStart;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class RunningJobsTest : public test::FakeNode {
 protected:
  RunningJobsTest() { welcome(); }
  std::string notice(size_t index) {
    const auto packet = process(index).read<NoticePacket>();
    return packet ? get_text(packet->text) : "no notice";
  }
  void desert(WorkerControlJob& job) {
    for (AttachedClient& client : clients_.all()) job.client_gone(client);
  }
  // Messages about a failure of the job, since the last call.
  std::vector<std::string> failures() {
    std::vector<std::string> texts;
    for (const v1::AgentMessage& message : coordinator_.take())
      if (message.has_job_failure()) texts.push_back(message.job_failure().error().message());
    return texts;
  }
  void break_link(Code code, Nanos now) {
    jobs_.broken({kJob, Status(code, "link to node b broke")}, now);
  }
};

TEST_F(RunningJobsTest, FailForAllRanksOnce) {
  WorkerControlJob& job = start_job(2);
  EXPECT_EQ(jobs_.running(kJob), &job);
  jobs_.report_failure(kJob, error("P101", "rank 9 died"), kStart);
  EXPECT_THAT(failures(), ElementsAre(HasSubstr("rank 9 died")));
  EXPECT_THAT(notice(0), HasSubstr("rank 9 died"));
  EXPECT_THAT(notice(1), HasSubstr("rank 9 died"));
  EXPECT_EQ(jobs_.running(kJob), nullptr);
  EXPECT_EQ(jobs_.find(kJob), &job);
  jobs_.fail(kJob, error("P101", "rank 8 died"), kStart);
  EXPECT_TRUE(process(0).quiet());
  jobs_.fail(kJob + 1, error("P101", "of another job"), kStart);  // nothing
}

// Expect: a lost peer is the cause only if the coordinator reports no other one within 700 ms.
TEST_F(RunningJobsTest, WaitForTheCauseOfABrokenLink) {
  start_job(1);
  break_link(Code::kPeerLost, kStart);
  break_link(Code::kPeerLost, kStart + 600 * kMillisecond);  // the deadline stays
  jobs_.tick(kStart + 700 * kMillisecond - 1);
  EXPECT_TRUE(process(0).quiet());
  jobs_.tick(kStart + 700 * kMillisecond);
  EXPECT_THAT(failures(), ElementsAre("link to node b broke"));
  EXPECT_EQ(notice(0), "link to node b broke");
  jobs_.tick(kStart + 10 * kSecond);
  EXPECT_THAT(failures(), IsEmpty());
}

// Expect: a coordinator that is away reports the cause when it has returned, or nobody does.
TEST_F(RunningJobsTest, WaitForTheCauseUntilTheCoordinatorIsBack) {
  start_job(1);
  connection_.ended("closed", kStart);
  break_link(Code::kPeerLost, kStart);
  jobs_.tick(kStart + 30 * kSecond);
  EXPECT_TRUE(process(0).quiet());
  jobs_.tick(kStart + 31 * kSecond);
  EXPECT_EQ(notice(0), "link to node b broke");
}

TEST_F(RunningJobsTest, ForgetABrokenLinkWithItsCause) {
  start_job(1);
  break_link(Code::kPeerLost, kStart);
  jobs_.fail(kJob, error("P101", "rank 1 died"), kStart);
  EXPECT_THAT(notice(0), HasSubstr("rank 1 died"));
  jobs_.tick(kStart + 10 * kSecond);
  EXPECT_THAT(failures(), IsEmpty());
}

TEST_F(RunningJobsTest, FailAtOnceForAnotherReason) {
  start_job(1);
  break_link(Code::kCorrupt, kStart);
  EXPECT_THAT(failures(), ElementsAre("link to node b broke"));
  jobs_.broken({kJob + 1, Status(Code::kCorrupt, "of a job that has ended")}, kStart);
  EXPECT_THAT(failures(), IsEmpty());
}

TEST_F(RunningJobsTest, StayUntilTheLastRankHasGone) {
  WorkerControlJob& job = start_job(2);
  jobs_.fail(kJob, error("P101", "rank 9 died"), kStart);
  jobs_.tick(kStart);
  EXPECT_NE(jobs_.find(kJob), nullptr);
  desert(job);
  jobs_.tick(kStart);
  EXPECT_EQ(jobs_.find(kJob), nullptr);
  EXPECT_EQ(quota_.bytes_used, 0u);
}

TEST_F(RunningJobsTest, EndWhenTheCoordinatorSaysSo) {
  start_job(1);
  EXPECT_GT(quota_.bytes_used, 0u);
  jobs_.end(kJob, kStart);
  EXPECT_EQ(jobs_.find(kJob), nullptr);
  EXPECT_TRUE(process(0).quiet());
  jobs_.end(kJob, kStart);  // nothing
}

// Expect: without a coordinator that could end it, a job that everybody has left ends after 30 s.
TEST_F(RunningJobsTest, OrphansEndAfterAWhile) {
  desert(start_job(1));
  jobs_.tick(kStart);
  jobs_.tick(kStart + 100 * kSecond);
  EXPECT_NE(jobs_.find(kJob), nullptr);  // the coordinator will end it
  connection_.ended("closed", kStart);
  jobs_.tick(kStart + 200 * kSecond);
  jobs_.tick(kStart + 230 * kSecond - 1);
  EXPECT_NE(jobs_.find(kJob), nullptr);
  jobs_.tick(kStart + 230 * kSecond);
  EXPECT_EQ(jobs_.find(kJob), nullptr);
}

// Expect: the coordinator that returns is told why a job has failed, though its ranks have ended.
TEST_F(RunningJobsTest, FailedOnesAreKeptForTheCoordinatorThatReturns) {
  WorkerControlJob& job = start_job(1);
  connection_.ended("closed", kStart);
  jobs_.fail(kJob, error("P101", "rank 0 died"), kStart);
  desert(job);
  jobs_.tick(kStart);
  jobs_.tick(kStart + 29 * kSecond);
  welcome(2);
  EXPECT_THAT(jobs_.announce(), IsEmpty());
  ASSERT_THAT(coordinator_.sent, SizeIs(1));
  EXPECT_THAT(coordinator_.sent[0].running_job().failed().message(), HasSubstr("rank 0 died"));
  jobs_.tick(kStart + 29 * kSecond);
  EXPECT_EQ(jobs_.find(kJob), nullptr);
}

TEST_F(RunningJobsTest, AreAnnouncedToANewCoordinatorOnly) {
  start_job(2);
  EXPECT_THAT(jobs_.announce(), IsEmpty());
  EXPECT_THAT(coordinator_.sent, IsEmpty());
  connection_.ended("closed", kStart);
  welcome(2);
  EXPECT_THAT(jobs_.announce(), ElementsAre(kJob));
  ASSERT_THAT(coordinator_.sent, SizeIs(1));
  const v1::RunningJob& told = coordinator_.sent[0].running_job();
  EXPECT_EQ(told.started().job(), "train");
  EXPECT_EQ(told.ranks_size(), 2);
  EXPECT_TRUE(told.last());
  EXPECT_THAT(jobs_.announce(), IsEmpty());
}

// Expect: a job that has failed is announced with the reason, but its ranks are not asked again.
TEST_F(RunningJobsTest, AreAnnouncedWithTheirFailure) {
  start_job(1);
  jobs_.fail(kJob, error("P101", "rank 9 died"), kStart);
  welcome(2);
  EXPECT_THAT(jobs_.announce(), IsEmpty());
  ASSERT_THAT(coordinator_.sent, SizeIs(1));
  EXPECT_THAT(coordinator_.sent[0].running_job().failed().message(), HasSubstr("rank 9 died"));
}

TEST_F(RunningJobsTest, FailWithTheLease) {
  start_job(1);
  jobs_.lost_lease();
  EXPECT_THAT(notice(0), HasSubstr("GB-M004"));
  EXPECT_THAT(failures(), IsEmpty());  // the coordinator has removed the ranks
}

TEST_F(RunningJobsTest, FailWithTheAgent) {
  start_job(1);
  jobs_.stop();
  EXPECT_THAT(notice(0), HasSubstr("agent \"node-a\" is stopping"));
}

TEST_F(RunningJobsTest, AreCountedInHeartbeats) {
  start_job(2);
  jobs_.send_heartbeat(kStart);
  EXPECT_FALSE(connection_.heartbeat_due(kStart + 499 * kMillisecond));
  ASSERT_THAT(coordinator_.sent, SizeIs(1));
  const v1::Heartbeat heartbeat = coordinator_.take()[0].heartbeat();
  ASSERT_EQ(heartbeat.jobs_size(), 1);
  EXPECT_EQ(heartbeat.jobs(0).ranks_size(), 2);
  jobs_.fail(kJob, error("P101", "rank 9 died"), kStart);
  jobs_.send_heartbeat(kStart);
  EXPECT_EQ(coordinator_.take()[0].heartbeat().jobs_size(), 0);
}

// Expect: spans go out every 50 ms, and at once when the job ends.
TEST_F(RunningJobsTest, SendTheirTraces) {
  WorkerControlJob& job = start_job(1);
  v1::TraceJob on;
  on.set_on(true);
  on.set_coordinator_ns(17);
  jobs_.traces().set(job, on, kStart);
  auto sent = coordinator_.take();
  ASSERT_THAT(sent, SizeIs(1));  // for the offset of the clocks
  EXPECT_EQ(sent[0].trace_records().coordinator_ns(), 17u);
  EXPECT_EQ(sent[0].trace_records().agent_ns(), static_cast<uint64_t>(kStart));
  jobs_.traces().tick(jobs_.all(), kStart);
  EXPECT_THAT(coordinator_.take(), IsEmpty());  // there are no spans
  EXPECT_TRUE(job.tracer().on());
  jobs_.traces().tick(jobs_.all(), kStart + 6 * kSecond);
  EXPECT_FALSE(job.tracer().on());  // nobody has renewed it
}

TEST_F(RunningJobsTest, KeepSpansFromASlowCoordinator) {
  WorkerControlJob& job = start_job(1);
  v1::TraceJob on;
  on.set_on(true);
  on.set_coordinator_ns(17);
  coordinator_.waiting = 65;
  jobs_.traces().set(job, on, kStart);
  EXPECT_THAT(coordinator_.sent, IsEmpty());
  coordinator_.waiting = 64;
  jobs_.traces().set(job, on, kStart);
  EXPECT_THAT(coordinator_.sent, SizeIs(1));
}

}  // namespace
}  // namespace gradbus
