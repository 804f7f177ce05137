// The connection to the coordinator: what may be sent when, back-off, patience and heartbeats.
#include "worker_agent/control/coordinator_connection.h"

#include <gmock/gmock.h>

#include "data_plane/ended_links.h"
#include "proto/return_margin.h"
#include "tests/unit/worker_agent/control/fake_coordinator.h"

namespace gradbus {
namespace {

using test::FakeCoordinator;
using test::welcome;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr Nanos kStart = 1000 * kSecond;

class CoordinatorConnectionTest : public testing::Test {
 protected:
  FakeCoordinator coordinator_;
  CoordinatorConnection connection_{"host:7400", test::hello_of("node-a"), coordinator_};
};

TEST_F(CoordinatorConnectionTest, SendsOnlyHelloBeforeWelcome) {
  connection_.say_hello();
  ASSERT_THAT(coordinator_.hellos, SizeIs(1));
  EXPECT_EQ(coordinator_.hellos[0].name(), "node-a");
  EXPECT_FALSE(connection_.connected());
  EXPECT_FALSE(connection_.send({}));
  EXPECT_THAT(coordinator_.sent, IsEmpty());
  connection_.welcomed(welcome(11, 5), kStart);
  EXPECT_TRUE(connection_.connected());
  EXPECT_EQ(connection_.incarnation(), 11u);
  EXPECT_EQ(connection_.agent_id(), 5u);
  EXPECT_EQ(connection_.welcomes(), 1u);
  EXPECT_TRUE(connection_.send({}));
  EXPECT_THAT(coordinator_.sent, SizeIs(1));
  connection_.ended("closed", kStart);
  EXPECT_FALSE(connection_.send({}));
  EXPECT_THAT(coordinator_.sent, SizeIs(1));
}

// Expect: 100 ms, twice as long each time, at most a second; at first again after a Welcome.
TEST_F(CoordinatorConnectionTest, BacksOffUpToASecond) {
  EXPECT_FALSE(connection_.hello_due(kStart));  // the first one is said by the caller
  Nanos now = kStart;
  std::vector<int64_t> pauses_ms;
  const auto pause = [&] {
    connection_.ended("refused", now);
    const Nanos ended = now;
    while (!connection_.hello_due(now)) now += kMillisecond;
    pauses_ms.push_back((now - ended) / kMillisecond);
    connection_.say_hello();
    EXPECT_FALSE(connection_.hello_due(now + 100 * kSecond));  // a stream is being opened
  };
  for (int i = 0; i < 6; ++i) pause();
  connection_.welcomed(welcome(), kStart);
  pause();
  EXPECT_THAT(pauses_ms, ElementsAre(100, 200, 400, 800, 1000, 1000, 100));
}

// Expect: a coordinator that was gone reports what it has missed within its lease, its margin for
// the return and the deadline of links; before its return, a minute more.
TEST_F(CoordinatorConnectionTest, SaysByWhenLossesAreReported) {
  const Nanos margin = kReturnMargin + kShardLossDeadline;
  v1::Welcome message = welcome();
  message.set_lease_ms(2000);
  connection_.welcomed(message, kStart);
  EXPECT_EQ(connection_.reports_by(), 0) << "it was not gone";
  connection_.ended("closed", kStart + kSecond);
  connection_.ended("refused", kStart + 9 * kSecond);
  EXPECT_EQ(connection_.reports_by(), kStart + 61 * kSecond + margin);
  connection_.welcomed(message, kStart + 10 * kSecond);
  EXPECT_EQ(connection_.reports_by(), kStart + 12 * kSecond + margin);
}

// Expect: a minute counts from the first end, and starts anew after a Welcome.
TEST_F(CoordinatorConnectionTest, IsPatientForAMinute) {
  EXPECT_TRUE(connection_.may_return(kStart));
  connection_.ended("refused", kStart);
  connection_.ended("refused", kStart + 50 * kSecond);
  EXPECT_TRUE(connection_.may_return(kStart + 60 * kSecond - 1));
  EXPECT_FALSE(connection_.may_return(kStart + 60 * kSecond));
  EXPECT_THAT(connection_.given_up().message(), HasSubstr("host:7400 is gone for more than 60 s"));
  connection_.welcomed(welcome(), kStart);
  EXPECT_TRUE(connection_.may_return(kStart + 1000 * kSecond));
  connection_.ended("closed", kStart + 2000 * kSecond);
  EXPECT_TRUE(connection_.may_return(kStart + 2059 * kSecond));
  EXPECT_FALSE(connection_.may_return(kStart + 2060 * kSecond));
}

TEST_F(CoordinatorConnectionTest, BeatsAtOnceAndThenAsOftenAsAsked) {
  EXPECT_FALSE(connection_.heartbeat_due(kStart));
  connection_.welcomed(welcome(), kStart);  // every 500 ms
  EXPECT_TRUE(connection_.heartbeat_due(kStart));
  connection_.send_heartbeat({}, kStart);
  EXPECT_THAT(coordinator_.sent, SizeIs(1));
  EXPECT_FALSE(connection_.heartbeat_due(kStart + 500 * kMillisecond - 1));
  EXPECT_TRUE(connection_.heartbeat_due(kStart + 500 * kMillisecond));
  connection_.ended("closed", kStart);
  EXPECT_FALSE(connection_.heartbeat_due(kStart + 10 * kSecond));
  v1::Welcome hasty = welcome();
  hasty.set_heartbeat_ms(0);  // would be a heartbeat in every turn
  connection_.welcomed(hasty, kStart);
  connection_.send_heartbeat({}, kStart);
  EXPECT_FALSE(connection_.heartbeat_due(kStart + 10 * kMillisecond - 1));
  EXPECT_TRUE(connection_.heartbeat_due(kStart + 10 * kMillisecond));
}

TEST_F(CoordinatorConnectionTest, SaysWhyThereIsNone) {
  EXPECT_THAT(connection_.why_not_connected().message(),
              HasSubstr("GB-C501 COORDINATOR_LOST: agent \"node-a\" has no connection"));
  connection_.ended("GB-C503 TOKEN_NOT_PROVEN: no", kStart);
  EXPECT_EQ(connection_.why_not_connected().code(), Code::kPermission);
  EXPECT_EQ(connection_.why_not_connected().message(), "GB-C503 TOKEN_NOT_PROVEN: no");
  EXPECT_EQ(connection_.not_proven().message(), "GB-C503 TOKEN_NOT_PROVEN: no");
  EXPECT_THAT(connection_.gone().message(), HasSubstr("GB-C501"));
  connection_.ended("connection refused", kStart);
  EXPECT_TRUE(connection_.not_proven().ok());
}

TEST_F(CoordinatorConnectionTest, TellsTheNextOneThatItIsDrained) {
  connection_.say_hello();
  EXPECT_FALSE(coordinator_.hellos.back().drained().drained());
  v1::NodeDrained drained;
  drained.set_drained(true);
  drained.set_reason("new kernel");
  connection_.drained(drained);
  connection_.say_hello();
  EXPECT_TRUE(coordinator_.hellos.back().drained().drained());
  EXPECT_EQ(coordinator_.hellos.back().drained().reason(), "new kernel");
}

}  // namespace
}  // namespace gradbus
