// Joins that wait for their job: who is refused at once, and who is in a job that starts.
#include "worker_agent/control/pending_joins.h"

#include <gmock/gmock.h>

#include "common/errors.h"
#include "tests/unit/worker_agent/control/fake_node.h"

namespace gradbus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class PendingJoinsTest : public test::FakeNode {
 protected:
  PendingJoinsTest() { welcome(); }
  static JoinPacket join(const std::string& job, int64_t rank, int64_t world_size = 4) {
    auto packet = make_packet<JoinPacket>(1);
    set_text(packet.job, job);
    packet.rank = rank;
    packet.world_size = world_size;
    packet.pid = 99;
    return packet;
  }
  std::string refusal(AttachedClient& client, const JoinPacket& packet) {
    return joins_.ask(client, packet, 0).message();
  }

  PendingJoins joins_{clients_, connection_};
};

TEST_F(PendingJoinsTest, AsksTheCoordinatorWithTheUserOfTheKernel) {
  AttachedClient& client = attach(4242);
  ASSERT_TRUE(joins_.ask(client, join("train", 3), 0).ok());
  EXPECT_EQ(client.state, AttachedClient::State::kJoining);
  ASSERT_THAT(coordinator_.sent, SizeIs(1));
  const v1::JoinJob& asked = coordinator_.sent[0].join_job();
  EXPECT_EQ(asked.job(), "train");
  EXPECT_EQ(asked.rank(), 3u);
  EXPECT_EQ(asked.world_size(), 4u);
  EXPECT_EQ(asked.uid(), 4242u);
  EXPECT_EQ(asked.pid(), 99u);
}

TEST_F(PendingJoinsTest, RefusesWrongNumbersAndNames) {
  AttachedClient& client = attach();
  EXPECT_THAT(refusal(client, join("", 0)), HasSubstr("GB-J401"));
  EXPECT_THAT(refusal(client, join("a\nb", 0)), HasSubstr("GB-J401"));
  EXPECT_THAT(refusal(client, join("train", 4)), HasSubstr("rank 4 is not in 0..3"));
  EXPECT_THAT(refusal(client, join("train", -1)), HasSubstr("rank -1 is not in 0..3"));
  EXPECT_THAT(refusal(client, join("train", 0, 0)), HasSubstr("world size 0 is not in 1.."));
  EXPECT_EQ(client.state, AttachedClient::State::kNew);
  EXPECT_THAT(coordinator_.sent, IsEmpty());
}

TEST_F(PendingJoinsTest, RefusesARankTwiceAndAnotherUsersJob) {
  ASSERT_TRUE(joins_.ask(attach(1000), join("train", 1), 0).ok());
  EXPECT_THAT(refusal(attach(1000), join("train", 1)), HasSubstr("GB-J402"));
  EXPECT_THAT(refusal(attach(1001), join("train", 2)), HasSubstr("GB-J408"));
  EXPECT_TRUE(joins_.ask(attach(1000), join("train", 2), 0).ok());
  EXPECT_TRUE(joins_.ask(attach(1001), join("other", 1), 0).ok());
}

TEST_F(PendingJoinsTest, RefusesWhileTheCoordinatorIsGone) {
  connection_.ended("closed", test::kStart);
  EXPECT_THAT(refusal(attach(), join("train", 1)), HasSubstr("GB-C501"));
}

// Expect: a coordinator that stands still is named before the client itself stops waiting.
TEST_F(PendingJoinsTest, EndsAWaitThatTheCoordinatorDoesNotEnd) {
  AttachedClient& client = attach();
  JoinPacket packet = join("train", 3);
  packet.start_timeout_ms = 5000;
  ASSERT_TRUE(joins_.ask(client, packet, test::kStart).ok());
  EXPECT_THAT(clients_.silent(test::kStart + 7 * kSecond - 1), IsEmpty());
  EXPECT_THAT(clients_.silent(test::kStart + 7 * kSecond), ElementsAre(client.fd()));
  joins_.expire(client);
  const auto refused = process(0).read<JoinedPacket>();
  ASSERT_TRUE(refused);
  EXPECT_THAT(get_text(refused->text), AllOf(HasSubstr("GB-J404"), HasSubstr("neither started"),
                                             HasSubstr("rank 3"), HasSubstr("\"train\"")));
}

// Expect: the deadline of a join is none of the running job.
TEST_F(PendingJoinsTest, HasNoDeadlineAfterTheStart) {
  AttachedClient& client = attach();
  ASSERT_TRUE(joins_.ask(client, join("train", 0, 1), test::kStart).ok());
  EXPECT_THAT(joins_.take(test::started_job(1), 0), ElementsAre(&client));
  EXPECT_EQ(client.deadline, 0);
}

// Expect: the clients of the job in the order of their local ranks, and nobody else.
TEST_F(PendingJoinsTest, FindsTheRanksOfAJob) {
  AttachedClient& second = attach_joining(1);
  AttachedClient& first = attach_joining(0);
  AttachedClient& other = attach_joining(0);
  other.job = "other";
  EXPECT_THAT(joins_.take(test::started_job(2), 0), ElementsAre(&first, &second));
  EXPECT_EQ(first.job_id, test::kJob);
  EXPECT_EQ(second.local_rank, 1u);
  EXPECT_EQ(other.job_id, 0u);
  EXPECT_THAT(joins_.take(test::started_job(2), 1), IsEmpty());  // another agent's ranks
}

// Expect: the job does not start here, and its failure, which follows, is told to those who wait.
TEST_F(PendingJoinsTest, DoesNotStartWithoutADeadRank) {
  AttachedClient& client = attach_joining(1);
  EXPECT_THAT(joins_.take(test::started_job(2), 0), IsEmpty());
  joins_.refuse_job(test::kJob + 1, error("P101", "rank 9 died"));
  EXPECT_TRUE(process(0).quiet());
  joins_.refuse_job(test::kJob, error("P101", "rank 0 died"));
  const auto refused = process(0).read<JoinedPacket>();
  ASSERT_TRUE(refused);
  EXPECT_THAT(get_text(refused->text), HasSubstr("rank 0 died"));
  EXPECT_EQ(client.state, AttachedClient::State::kLeft);
}

// Expect: who died before the start, and not who came after it, is meant by the start and by a
// refusal. A coordinator that tells no number means whoever waits.
TEST_F(PendingJoinsTest, TakesNobodyForOneWhoDied) {
  AttachedClient& first = attach_joining(0);
  const uint64_t number = first.number();
  clients_.remove(first.fd());
  AttachedClient& second = attach_joining(0);
  v1::JobStarted started = test::started_job(1);
  started.mutable_members(0)->set_join(number);
  EXPECT_THAT(joins_.take(started, 0), IsEmpty());
  v1::JoinRefused refused;
  refused.set_job("train");
  refused.set_join(number);
  joins_.refuse(refused);
  EXPECT_EQ(second.state, AttachedClient::State::kJoining);
  started.mutable_members(0)->set_join(0);
  EXPECT_THAT(joins_.take(started, 0), ElementsAre(&second));
}

TEST_F(PendingJoinsTest, PassesRefusalsOn) {
  attach_joining(0);
  attach_joining(1);
  v1::JoinRefused refused;
  refused.set_job("train");
  refused.set_rank(1);
  refused.mutable_error()->set_code(static_cast<uint32_t>(Code::kMismatch));
  refused.mutable_error()->set_message("GB-J403 no");
  joins_.refuse(refused);
  EXPECT_TRUE(process(0).quiet());
  EXPECT_EQ(process(1).read<JoinedPacket>()->code, static_cast<uint32_t>(Code::kMismatch));
  joins_.refuse_all(connection_.gone());
  EXPECT_EQ(process(0).read<JoinedPacket>()->code,
            static_cast<uint32_t>(connection_.gone().code()));
  EXPECT_TRUE(process(1).quiet());
}

}  // namespace
}  // namespace gradbus
