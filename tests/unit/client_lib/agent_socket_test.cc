// The socket of a session: what ends the session, and what the agent is told of waits.
#include "client_lib/src/agent_socket.h"

#include <gmock/gmock.h>

#include "tests/unit/client_lib/fake_agent.h"

namespace gradbus {
namespace {

using test::FakeAgent;
using testing::HasSubstr;

constexpr Nanos kStart = 1000 * kSecond;

TEST(AgentSilence, CountsFromOneLookToTheNext) {
  AgentSilence silence;
  EXPECT_EQ(silence.look(true, kStart), 0);
  EXPECT_EQ(silence.look(true, kStart + kSecond), kSecond);
  EXPECT_EQ(silence.look(true, kStart + 2 * kSecond), 2 * kSecond);
  EXPECT_EQ(silence.look(false, kStart + 3 * kSecond), 0);  // it has read everything
  EXPECT_EQ(silence.look(true, kStart + 4 * kSecond), 0);
  EXPECT_EQ(silence.look(true, kStart + 5 * kSecond), kSecond);
}

// Expect: a pause of this process is not the agent's silence.
TEST(AgentSilence, CountsALongPauseAsTwoLooks) {
  AgentSilence silence;
  silence.look(true, kStart);
  EXPECT_EQ(silence.look(true, kStart + 1000 * kSecond), 2 * AgentSilence::kLookEvery);
}

class AgentSocketTest : public testing::Test {
 protected:
  AgentSocketTest() { socket_.open(agent_.connection()); }
  // The numbers of the requests that have arrived.
  std::vector<uint32_t> receive() {
    std::vector<uint32_t> requests;
    socket_.receive([&](Packet& packet) {
      if (static_cast<AttachType>(packet.header.type) == AttachType::kNotice)
        socket_.take_notice(packet.as<NoticePacket>().value());
      requests.push_back(packet.header.request);
      return packet.header.request == 99 ? bad_packet("99") : Status();
    });
    return requests;
  }
  void notify(Code code, const std::string& text) {
    auto notice = make_packet<NoticePacket>();
    notice.code = static_cast<uint32_t>(code);
    set_text(notice.text, text);
    agent_.send(notice);
  }

  FakeAgent agent_;
  AgentSocket socket_{5 * kSecond};
};

TEST_F(AgentSocketTest, HandlesPacketsInOrderUntilOneIsWrong) {
  for (const uint32_t request : {3, 4, 99, 5}) agent_.send(make_packet<AnswerPacket>(request));
  EXPECT_THAT(receive(), testing::ElementsAre(3, 4, 99));
  EXPECT_TRUE(socket_.failed());
  EXPECT_EQ(socket_.failure().code(), Code::kCorrupt);
  EXPECT_THAT(receive(), testing::IsEmpty());
}

TEST_F(AgentSocketTest, EndsWithTheAgent) {
  EXPECT_TRUE(socket_.failure().ok());
  agent_.close();
  receive();
  EXPECT_THAT(socket_.failure().message(), HasSubstr("GB-A301"));
}

// Expect: a stall is told and changes nothing; the job's failure is kept as it came.
TEST_F(AgentSocketTest, TakesNotices) {
  EXPECT_EQ(socket_.notice(), "");
  notify(Code::kOk, "rank 1 is late");
  receive();
  EXPECT_EQ(socket_.notice(), "rank 1 is late");
  EXPECT_FALSE(socket_.failed());
  notify(Code::kPeerLost, "GB-P101 rank 1 died");
  receive();
  EXPECT_EQ(socket_.failure().message(), "GB-P101 rank 1 died");
  EXPECT_EQ(socket_.failure().code(), Code::kPeerLost);
}

TEST_F(AgentSocketTest, ReportsThatThisRankIsBlocked) {
  socket_.report_blocked("w", 3, 1500 * kMillisecond, true, kStart);
  const auto report = agent_.read<BlockedPacket>();
  ASSERT_TRUE(report);
  EXPECT_EQ(get_text(report->name), "w");
  EXPECT_EQ(report->round, 3u);
  EXPECT_EQ(report->waited_ms, 1500u);
  EXPECT_EQ(report->background, 1u);
}

// Expect: an agent that reads again in time is alive. One that does not ends the session after 5 s.
TEST_F(AgentSocketTest, EndsWhenTheAgentReadsNothing) {
  Nanos now = kStart;
  const auto report = [&] { socket_.report_blocked("w", 3, 0, false, now += kSecond); };
  for (int i = 0; i < 5; ++i) report();
  EXPECT_FALSE(socket_.failed());
  while (agent_.read<BlockedPacket>()) {
  }
  for (int i = 0; i < 6; ++i) report();
  EXPECT_FALSE(socket_.failed());
  report();
  EXPECT_THAT(socket_.failure().message(), HasSubstr("has not read its socket for 5.0 s"));
}

TEST(AgentSocketAlone, DoesNothing) {
  AgentSocket socket(5 * kSecond);
  EXPECT_FALSE(socket.is_open());
  socket.receive([](Packet&) { return bad_packet("from nobody"); });
  socket.report_blocked("w", 1, 0, false, kStart);
  EXPECT_TRUE(socket.failure().ok());
}

}  // namespace
}  // namespace gradbus
