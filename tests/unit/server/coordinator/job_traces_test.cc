// Trace: who may record a job, which agents are told, clock offsets, and bounds of memory.
#include <gmock/gmock.h>

#include "tests/unit/server/coordinator/cluster.h"

namespace gradbus {
namespace {

using test::Cluster;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

class JobTracesTest : public testing::Test {
 protected:
  v1::TraceReply ask(bool wait = false, bool finish = false, uint32_t uid = 0) {
    v1::TraceRequest request;
    request.set_job("train");
    request.set_wait(wait);
    request.set_finish(finish);
    request.mutable_caller()->set_uid(uid);
    cluster.clear();
    v1::TraceReply reply = cluster.coordinator.trace(request, "here", cluster.now);
    cluster.collect();
    return reply;
  }

  v1::AgentMessage records(uint64_t job, size_t spans) const {
    v1::AgentMessage message;
    message.mutable_trace_records()->set_job_id(job);
    v1::TraceTrack& track = *message.mutable_trace_records()->add_tracks();
    for (size_t i = 0; i < spans; ++i) {
      v1::TraceSpan& span = *track.add_spans();
      span.set_kind(2);
      span.set_begin_ns(i);
      span.set_end_ns(i + 1);
      span.set_name(std::string(40, 'x'));
    }
    return message;
  }

  // The orders that each of the job's two agents has received since the last question.
  std::vector<bool> orders() {
    std::vector<bool> found;
    for (const uint64_t agent : {1, 2})
      for (const v1::CoordinatorMessage& message : cluster.inbox[agent])
        if (message.has_trace_job()) found.push_back(message.trace_job().on());
    return found;
  }

  // A job of two ranks that a trace waits for: its messages stay in the inboxes.
  uint64_t start_waited_for() {
    cluster.hello(1, "node-a");
    cluster.hello(2, "node-b");
    cluster.clear();
    cluster.join(1, "train", 0, 2);
    cluster.join(2, "train", 1, 2);
    return cluster.inbox[1].at(0).job_started().job_id();
  }

  Cluster cluster;
};

TEST_F(JobTracesTest, TellsTheAgentsAndPassesTheirSpansOnOnce) {
  const uint64_t job = cluster.start_job("train", 2);
  EXPECT_EQ(ask().state(), v1::TraceReply::RUNNING);
  EXPECT_EQ(orders(), (std::vector<bool>{true, true}));
  cluster.send(2, records(job, 3));
  const v1::TraceReply reply = ask();
  ASSERT_EQ(reply.parts_size(), 1);
  EXPECT_EQ(reply.parts(0).agent_index(), 1u);
  EXPECT_EQ(reply.parts(0).tracks(0).spans_size(), 3);
  EXPECT_EQ(reply.agents_size(), 2);
  EXPECT_EQ(ask().parts_size(), 0);
  ask(false, true);
  EXPECT_EQ(orders(), (std::vector<bool>{false, false}));
}

TEST_F(JobTracesTest, WaitsForAJobAndFollowsItToItsEnd) {
  EXPECT_EQ(ask(true).state(), v1::TraceReply::WAITING);
  const uint64_t job = start_waited_for();
  EXPECT_EQ(orders(), (std::vector<bool>{true, true}));
  cluster.send(1, records(job, 1));
  cluster.left(1, job, 0, true);
  cluster.left(2, job, 1, true);
  cluster.advance(100 * kMillisecond);
  cluster.send(2, records(job, 2));  // sent before the agent knew
  EXPECT_EQ(ask(true).parts_size(), 2);
  cluster.advance(kSecond);
  EXPECT_EQ(ask(true).state(), v1::TraceReply::ENDED);
  EXPECT_EQ(ask(true).state(), v1::TraceReply::WAITING);  // for the next one of this name
}

// The answer was sent between both times, so the offset is exact to half of the round trip.
TEST_F(JobTracesTest, FindsTheOffsetOfEachClockByItsFastestAnswer) {
  const uint64_t job = cluster.start_job("train", 2);
  ask();
  const auto answer = [&](Nanos there, Nanos back, int64_t offset) {
    v1::AgentMessage message = records(job, 0);
    message.mutable_trace_records()->set_coordinator_ns(static_cast<uint64_t>(cluster.now));
    message.mutable_trace_records()->set_agent_ns(
        static_cast<uint64_t>(cluster.now + there + offset));
    cluster.now += there + back;
    cluster.send(1, message);
  };
  const int64_t offset = 5 * kSecond;
  answer(40 * kMillisecond, 2 * kMillisecond, offset);
  EXPECT_NEAR(ask().agents(0).offset_ns(), offset, 21 * kMillisecond);
  answer(kMillisecond, kMillisecond / 2, offset);
  answer(kMillisecond, 90 * kMillisecond, offset);  // worse, so it does not count
  const v1::TracedAgent agent = ask().agents(0);
  EXPECT_NEAR(agent.offset_ns(), offset, kMillisecond);
  EXPECT_LE(agent.error_ns(), static_cast<uint64_t>(kMillisecond));
  EXPECT_LE(std::abs(agent.offset_ns() - offset), static_cast<int64_t>(agent.error_ns()));
}

// The coordinator's clock stands still while the coordinator is suspended.
TEST_F(JobTracesTest, TakesTheNewOffsetAfterAPause) {
  const uint64_t job = cluster.start_job("train", 2);
  ask();
  for (const int64_t offset : {5 * kSecond, 7 * kSecond}) {
    v1::AgentMessage message = records(job, 0);
    message.mutable_trace_records()->set_coordinator_ns(static_cast<uint64_t>(cluster.now));
    message.mutable_trace_records()->set_agent_ns(static_cast<uint64_t>(cluster.now + offset));
    cluster.now += offset / 1000;  // the second answer is slower
    cluster.send(1, message);
    EXPECT_NEAR(ask().agents(0).offset_ns(), offset, offset / 1000);
  }
}

TEST_F(JobTracesTest, IsForOneTool) {
  cluster.start_job("train", 2);
  ask();
  v1::TraceRequest other;
  other.set_job("train");
  other.set_tool(7);
  other.mutable_caller();
  EXPECT_THAT(cluster.coordinator.trace(other, "here", cluster.now).error().message(),
              HasSubstr("another program"));
  EXPECT_THAT(ask(false, true).error().message(), IsEmpty());
  EXPECT_EQ(cluster.coordinator.trace(other, "here", cluster.now).state(), v1::TraceReply::RUNNING);
}

TEST_F(JobTracesTest, EndsWhenNobodyTakesIt) {
  cluster.start_job("train", 2);
  ask();
  cluster.clear();
  cluster.advance(kTakenWithin + kSecond);
  const std::vector<bool> heard = orders();
  EXPECT_THAT(heard, testing::Contains(false).Times(2));
  EXPECT_FALSE(heard.back());
  cluster.clear();
  cluster.advance(3 * kSecond);
  EXPECT_THAT(orders(), IsEmpty());
}

TEST_F(JobTracesTest, KeepsABoundedNumberOfBytes) {
  const uint64_t job = cluster.start_job("train", 2);
  ask();
  const v1::AgentMessage large = records(job, 8192);
  const size_t bytes = large.trace_records().ByteSizeLong();
  const size_t messages = 2 * kTraceBytesMax / bytes;
  for (size_t i = 0; i < messages; ++i) cluster.send(1, large);
  const v1::TraceReply reply = ask();
  EXPECT_LE(static_cast<size_t>(reply.parts_size()) * bytes, kTraceBytesMax);
  EXPECT_EQ(reply.dropped(), (messages - static_cast<size_t>(reply.parts_size())) * 8192);
  EXPECT_GT(reply.dropped(), 0u);
}

TEST_F(JobTracesTest, IsForTheOwnerAndRoot) {
  cluster.user = {1000, "alice"};
  cluster.start_job("train", 2);
  EXPECT_THAT(ask(false, false, 1001).error().message(), StartsWith("GB-J408"));
  EXPECT_THAT(ask(false, false, 1000).error().message(), IsEmpty());
  EXPECT_THAT(ask(false, false, 0).error().message(), IsEmpty());
}

TEST_F(JobTracesTest, OfAnotherUserThatWaitedForTheJobIsDropped) {
  cluster.user = {1000, "alice"};
  EXPECT_THAT(ask(true, false, 1001).error().message(), IsEmpty());
  EXPECT_THAT(ask(true, false, 1002).error().message(), HasSubstr("uid 1001"));
  start_waited_for();
  EXPECT_THAT(orders(), IsEmpty());
  EXPECT_THAT(ask(true, false, 1001).error().message(), StartsWith("GB-J408"));
}

TEST_F(JobTracesTest, NonsenseOfAgentsIsCounted) {
  const uint64_t job = cluster.start_job("train", 2);
  cluster.hello(3, "intruder");
  ask();
  cluster.send(3, records(job, 1));
  EXPECT_EQ(cluster.coordinator.warnings(), 1u);
  v1::AgentMessage future = records(job, 1);
  future.mutable_trace_records()->set_coordinator_ns(uint64_t(cluster.now) + 1);
  cluster.send(1, future);
  EXPECT_EQ(cluster.coordinator.warnings(), 2u);
  const uint64_t now = uint64_t(cluster.now);
  for (const auto& [sent, theirs] :
       {std::pair{now, ~uint64_t{0}}, {now, uint64_t{1} << 62}, {uint64_t{1} << 63, now}}) {
    v1::AgentMessage message = records(job, 1);
    message.mutable_trace_records()->set_coordinator_ns(sent);
    message.mutable_trace_records()->set_agent_ns(theirs);
    cluster.send(1, message);
  }
  EXPECT_EQ(cluster.coordinator.warnings(), 5u);
  EXPECT_EQ(ask().parts_size(), 0);
}

TEST_F(JobTracesTest, AreFew) {
  for (size_t i = 0; i < kTracesMax; ++i) {
    v1::TraceRequest request;
    request.set_job("job-" + std::to_string(i));
    request.set_wait(true);
    request.mutable_caller();
    EXPECT_THAT(cluster.coordinator.trace(request, "here", cluster.now).error().message(),
                IsEmpty());
  }
  EXPECT_THAT(ask(true).error().message(), StartsWith("GB-C506"));
}

}  // namespace
}  // namespace gradbus
