// Packets of clients in each of their states, and what their ends mean for a job.
#include "worker_agent/control/client_requests.h"

#include <gmock/gmock.h>

#include "common/errors.h"
#include "tests/unit/worker_agent/control/fake_node.h"

namespace gradbus {
namespace {

using test::as_packet;
using test::kJob;
using test::kStart;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using State = AttachedClient::State;

class ClientRequestsTest : public test::FakeNode {
 protected:
  ClientRequestsTest() { welcome(); }
  template <typename T>
  Status take(AttachedClient& client, const T& packet, Nanos now = kStart) {
    return requests_.take(client, as_packet(packet), now);
  }
  AttachedClient& client(uint32_t rank) {
    for (AttachedClient& found : clients_.all())
      if (found.rank == rank) return found;
    throw std::out_of_range("no such rank");
  }

  ClientRequests requests_{clients_, jobs_, connection_, devices_};
};

TEST_F(ClientRequestsTest, AllowsWhatFitsTheState) {
  AttachedClient& fresh = attach();
  EXPECT_EQ(take(fresh, make_packet<RegisterPacket>()).code(), Code::kCorrupt);
  EXPECT_EQ(take(fresh, make_packet<QuestionPacket>()).code(), Code::kCorrupt);
  AttachedClient& joining = attach_joining(0);
  EXPECT_EQ(take(joining, make_packet<JoinPacket>()).code(), Code::kCorrupt);
  AttachedClient& running = attach_running(1);
  EXPECT_EQ(take(running, make_packet<AdminPacket>()).code(), Code::kCorrupt);
  EXPECT_EQ(take(running, make_packet<JoinPacket>()).code(), Code::kCorrupt);
  EXPECT_EQ(take(running, make_packet<NoticePacket>()).code(), Code::kCorrupt);
  Packet cut = as_packet(make_packet<RegisterPacket>());
  cut.bytes.pop_back();
  EXPECT_EQ(requests_.take(running, cut, kStart).code(), Code::kCorrupt);
  EXPECT_THAT(coordinator_.sent, IsEmpty());
}

// Expect: of the reports within 200 ms only the first one is passed on.
TEST_F(ClientRequestsTest, LimitsReportsOfBlockedRanks) {
  AttachedClient& running = attach_running(1);
  auto report = make_packet<BlockedPacket>();
  set_text(report.name, "w");
  report.round = 3;
  ASSERT_TRUE(take(running, report, kStart).ok());
  ASSERT_TRUE(take(running, report, kStart + 200 * kMillisecond - 1).ok());
  ASSERT_THAT(coordinator_.sent, SizeIs(1));
  EXPECT_EQ(coordinator_.sent[0].rank_blocked().tensor(), "w");
  EXPECT_EQ(coordinator_.sent[0].rank_blocked().rank(), 1u);
  ASSERT_TRUE(take(running, report, kStart + 200 * kMillisecond).ok());
  EXPECT_THAT(coordinator_.sent, SizeIs(2));
  report.background = 1;  // another thread's
  ASSERT_TRUE(take(running, report, kStart + 200 * kMillisecond).ok());
  ASSERT_THAT(coordinator_.sent, SizeIs(3));
  EXPECT_TRUE(coordinator_.sent[2].rank_blocked().background());
  set_text(report.name, "\xff");
  EXPECT_EQ(take(running, report, kStart).code(), Code::kCorrupt);
}

// Expect: the requests of the turn, the last counters, and then the leave.
TEST_F(ClientRequestsTest, SendsTheLastOfARankThatLeaves) {
  start_job(2);
  auto wanted = make_packet<RegisterPacket>();
  set_text(wanted.name, "w");
  wanted.count = 8;
  wanted.dtype = static_cast<uint8_t>(DType::kF32);
  wanted.op = static_cast<uint8_t>(ReduceOp::kSum);
  wanted.collective = static_cast<uint8_t>(CollectiveKind::kAllReduce);
  ASSERT_TRUE(take(client(1), wanted).ok());
  ASSERT_TRUE(take(client(1), make_packet<LeavePacket>()).ok());
  ASSERT_THAT(coordinator_.sent, SizeIs(3));
  EXPECT_TRUE(coordinator_.sent[0].has_register_tensors());
  EXPECT_TRUE(coordinator_.sent[1].has_heartbeat());
  EXPECT_TRUE(coordinator_.sent[2].rank_left().clean());
  EXPECT_EQ(coordinator_.sent[2].rank_left().rank(), 1u);
  coordinator_.take();
  requests_.client_gone(client(1), kStart);
  EXPECT_THAT(coordinator_.sent, IsEmpty());
  EXPECT_NE(jobs_.running(kJob), nullptr);
}

TEST_F(ClientRequestsTest, EndsTheJobOfALostRank) {
  start_job(2);
  requests_.client_gone(client(1), kStart);
  ASSERT_THAT(coordinator_.sent, SizeIs(1));
  EXPECT_FALSE(coordinator_.sent[0].rank_left().clean());
  EXPECT_THAT(coordinator_.sent[0].rank_left().detail(), HasSubstr("ended without leaving"));
  EXPECT_EQ(jobs_.running(kJob), nullptr);
  EXPECT_THAT(get_text(process(0).read<NoticePacket>()->text), HasSubstr("GB-P101"));
  EXPECT_TRUE(process(1).quiet());
  coordinator_.take();
  requests_.client_gone(client(0), kStart);  // the job has failed: no other cause is told
  EXPECT_THAT(coordinator_.sent, IsEmpty());
}

TEST_F(ClientRequestsTest, WithdrawsAJoin) {
  AttachedClient& joining = attach_joining(0);
  ASSERT_TRUE(take(joining, make_packet<LeavePacket>()).ok());
  ASSERT_THAT(coordinator_.sent, SizeIs(1));
  EXPECT_EQ(coordinator_.sent[0].rank_left().job(), "train");
  EXPECT_FALSE(coordinator_.sent[0].rank_left().clean());
  requests_.client_gone(joining, kStart);
  EXPECT_THAT(coordinator_.sent, SizeIs(1));
}

TEST_F(ClientRequestsTest, EndsWhoBreaksTheProtocol) {
  start_job(1);
  requests_.end_client(client(0), bad_packet("nonsense"), kStart);
  ASSERT_THAT(coordinator_.sent, SizeIs(1));
  EXPECT_THAT(coordinator_.sent[0].job_failure().error().message(), HasSubstr("rank 0 (pid 4711)"));
  AttachedClient& joining = attach_joining(1);
  requests_.end_client(joining, bad_packet("nonsense"), kStart);
  ASSERT_THAT(coordinator_.sent, SizeIs(2));
  EXPECT_THAT(coordinator_.sent[1].rank_left().detail(), HasSubstr("nonsense"));
  EXPECT_THAT(get_text(process(1).read<JoinedPacket>()->text), HasSubstr("nonsense"));
  EXPECT_EQ(joining.state, State::kLeft);
}

TEST_F(ClientRequestsTest, EndsTheJobOfWhoReadsNothing) {
  start_job(1);
  auto packet = make_packet<NoticePacket>();
  set_text(packet.text, std::string(sizeof(packet.text), 'x'));
  while (client(0).given_up().ok()) client(0).send(packet);
  requests_.end_given_up(client(0), kStart);
  ASSERT_THAT(coordinator_.sent, SizeIs(1));
  EXPECT_THAT(coordinator_.sent[0].job_failure().error().message(),
              HasSubstr("does not read its socket: 16 MiB"));
  EXPECT_EQ(jobs_.running(kJob), nullptr);
}

TEST_F(ClientRequestsTest, RefusesTheSilent) {
  requests_.expire(attach());
  EXPECT_THAT(get_text(process(0).read<JoinedPacket>()->text), HasSubstr("no join within 2 s"));
  AttachedClient& left = attach();
  left.state = State::kLeft;
  requests_.expire(left);
  EXPECT_TRUE(process(1).quiet());
}

// Expect: joins are refused; a running rank keeps its request for the next coordinator.
TEST_F(ClientRequestsTest, KeepsWhatANewCoordinatorCanDo) {
  attach_joining(0);
  AttachedClient& running = attach_running(1);
  running.wanted["w"] = {5, {}};
  connection_.ended("closed", kStart);
  requests_.coordinator_gone(connection_.gone());
  EXPECT_THAT(get_text(process(0).read<JoinedPacket>()->text), HasSubstr("GB-C501"));
  EXPECT_TRUE(process(1).quiet());
  EXPECT_THAT(running.wanted, SizeIs(1));
}

}  // namespace
}  // namespace gradbus
