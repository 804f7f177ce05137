// Requests of administrators' tools: who may ask, and that each gets one answer.
#include "worker_agent/control/admin_calls.h"

#include <gmock/gmock.h>

#include "common/errors.h"
#include "tests/unit/worker_agent/control/fake_node.h"

namespace gradbus {
namespace {

using test::kStart;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class AdminCallsTest : public test::FakeNode {
 protected:
  AdminCallsTest() { welcome(); }
  Status ask(AttachedClient& client, AdminWish wish, const std::string& job,
             const std::string& reason = "tests") {
    auto packet = make_packet<AdminPacket>(1);
    packet.wish = static_cast<uint32_t>(wish);
    set_text(packet.job, job);
    set_text(packet.group, "emb*");
    set_text(packet.mode, "sync");
    set_text(packet.reason, reason);
    return calls_.take(client, packet, kStart);
  }
  std::string read_answer(size_t index) {
    const auto packet = process(index).read<AdminAnswerPacket>();
    if (!packet) return "no answer";
    return packet->code == 0 ? "done" : get_text(packet->text);
  }
  v1::AdminAnswer answer(uint64_t request) {
    v1::AdminAnswer message;
    message.set_request(request);
    return message;
  }

  AdminCalls calls_{connection_};
};

TEST_F(AdminCallsTest, PassesTheUserOnAndTheAnswerBack) {
  AttachedClient& first = attach(4242);
  AttachedClient& second = attach(4343);
  ASSERT_TRUE(ask(first, AdminWish::kStop, "train").ok());
  ASSERT_TRUE(ask(second, AdminWish::kMode, "train").ok());
  ASSERT_THAT(coordinator_.sent, SizeIs(2));
  const v1::AdminCall& stop = coordinator_.sent[0].admin_call();
  EXPECT_EQ(stop.stop().job(), "train");
  EXPECT_EQ(stop.stop().reason(), "tests");
  EXPECT_EQ(stop.stop().caller().uid(), 4242u);
  EXPECT_EQ(stop.stop().caller().host(), "node-a");
  const v1::AdminCall& mode = coordinator_.sent[1].admin_call();
  EXPECT_EQ(mode.mode().group(), "emb*");
  EXPECT_EQ(mode.mode().mode(), "sync");
  EXPECT_EQ(mode.mode().caller().uid(), 4343u);
  v1::AdminAnswer refused = answer(mode.request());
  refused.mutable_error()->set_code(static_cast<uint32_t>(Code::kPermission));
  refused.mutable_error()->set_message("GB-J408 not yours");
  calls_.answered(refused);
  calls_.answered(answer(stop.request()));
  EXPECT_EQ(read_answer(0), "done");
  EXPECT_EQ(read_answer(1), "GB-J408 not yours");
  EXPECT_EQ(first.state, AttachedClient::State::kLeft);
  calls_.answered(answer(stop.request()));  // again
  EXPECT_TRUE(process(0).quiet());
}

// Expect: root and the agent's user may drain this node, and nobody another one.
TEST_F(AdminCallsTest, LetsFewUsersDrain) {
  ASSERT_TRUE(ask(attach(0), AdminWish::kDrain, "node-a").ok());
  ASSERT_TRUE(ask(attach(geteuid()), AdminWish::kUndoDrain, "node-a").ok());
  ASSERT_THAT(coordinator_.sent, SizeIs(2));
  EXPECT_EQ(coordinator_.sent[0].admin_call().drain().node(), "node-a");
  EXPECT_FALSE(coordinator_.sent[0].admin_call().drain().undo());
  EXPECT_TRUE(coordinator_.sent[1].admin_call().drain().undo());
  coordinator_.take();
  ASSERT_TRUE(ask(attach(0), AdminWish::kDrain, "node-b").ok());
  EXPECT_THAT(read_answer(2), HasSubstr("GB-J408"));
  ASSERT_TRUE(ask(attach(4242), AdminWish::kDrain, "node-a").ok());
  EXPECT_THAT(read_answer(3), HasSubstr("refused user 4242"));
  EXPECT_THAT(coordinator_.sent, IsEmpty());
}

TEST_F(AdminCallsTest, RefusesWhatIsNoRequest) {
  EXPECT_EQ(ask(attach(), static_cast<AdminWish>(9), "train").code(), Code::kCorrupt);
  EXPECT_EQ(ask(attach(), AdminWish::kStop, "train", "\xff").code(), Code::kCorrupt);
  EXPECT_THAT(coordinator_.sent, IsEmpty());
}

TEST_F(AdminCallsTest, AnswersOnceWhenTheDeadlinePasses) {
  AttachedClient& client = attach();
  ASSERT_TRUE(ask(client, AdminWish::kStop, "train").ok());
  EXPECT_EQ(client.deadline, kStart + 5 * kSecond);
  calls_.expire(client);
  EXPECT_THAT(read_answer(0), HasSubstr("did not answer in time"));
  calls_.answered(answer(1));
  EXPECT_TRUE(process(0).quiet());
}

TEST_F(AdminCallsTest, EndWithTheCoordinator) {
  AttachedClient& gone = attach();
  ASSERT_TRUE(ask(gone, AdminWish::kStop, "train").ok());
  ASSERT_TRUE(ask(attach(), AdminWish::kStop, "train").ok());
  calls_.forget(gone);
  clients_.remove(gone.fd());
  connection_.ended("closed", kStart);
  calls_.end_all(connection_.gone());
  EXPECT_THAT(read_answer(1), HasSubstr("GB-C501"));
  ASSERT_TRUE(ask(attach(), AdminWish::kStop, "train").ok());
  EXPECT_THAT(read_answer(2), HasSubstr("no connection to the coordinator"));
}

}  // namespace
}  // namespace gradbus
