// The promises of transport/transport.h about wait_fd(): who sleeps on it is woken for everything
// that poll() could do, and can sleep when there is nothing.
#include <sys/epoll.h>

#include <atomic>
#include <latch>
#include <thread>

#include "common/fd.h"
#include "contract/transport_variants.h"

namespace gradbus {
namespace {

constexpr int kWaitMs = 30'000;

// An outer loop's epoll set around one transport.
class Waiter {
 public:
  explicit Waiter(Transport& transport) : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    epoll_event event{};
    event.events = EPOLLIN;
    EXPECT_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, transport.wait_fd(), &event), 0);
  }
  bool wait(int timeout_ms) {
    epoll_event event{};
    return epoll_wait(epoll_.get(), &event, 1, timeout_ms) == 1;
  }

 private:
  Fd epoll_;
};

// Sleeps whenever a poll gives nothing. False: it was not woken although `done` was not reached.
bool sleep_until(Node& node, Waiter& waiter, const std::function<bool()>& done) {
  while (!done()) {
    if (node.poll() == 0 && !done() && !waiter.wait(kWaitMs)) return false;
  }
  return true;
}

// Polls for as long as there is something to do; then nothing wakes it for a while.
bool falls_asleep(Node& node, Waiter& waiter) {
  for (const Nanos deadline = monotonic_now() + kEventually; monotonic_now() < deadline;) {
    if (!waiter.wait(50)) return true;
    node.poll();
  }
  return false;
}

// b echoes every frame that comes, asleep between; a sends one, sleeps until the echo, and so on.
TEST_P(TransportContract, NoWakeUpIsMissedBetweenTwoThreads) {
  constexpr uint64_t kRounds = 300;
  const auto a = make_node(), b = make_node();
  const Ends ends = join(*a, *b);
  std::thread echo([&] {
    Waiter waiter(b->transport());
    b->receive(ends.acceptor);
    for (uint64_t round = 1; round <= kRounds; ++round) {
      ASSERT_TRUE(sleep_until(*b, waiter, [&] { return b->arrived.size() == round; })) << round;
      b->receive(ends.acceptor);
      b->send(ends.acceptor, round, round % 3 * 1000);
    }
    ASSERT_TRUE(sleep_until(*b, waiter, [&] { return b->ended_sends[Code::kOk] == kRounds; }));
  });
  Waiter waiter(a->transport());
  for (uint64_t round = 1; round <= kRounds; ++round) {
    a->receive(ends.opener);
    a->send(ends.opener, round, round % 5 * 20000);
    EXPECT_TRUE(sleep_until(*a, waiter, [&] { return a->arrived.size() == round; })) << round;
  }
  echo.join();
  EXPECT_TRUE(a->all_whole() && b->all_whole());
}

TEST_P(TransportContract, AStalledFrameLetsTheLoopSleepAndAReceiveWakesIt) {
  const auto a = make_node(), b = make_node();
  const Ends ends = join(*a, *b);
  a->send(ends.opener, 1, 1 << 20);
  poll_until_quiet({a.get(), b.get()});
  Waiter waiter(b->transport());
  EXPECT_TRUE(falls_asleep(*b, waiter)) << "an unread frame keeps the loop spinning";
  b->receive(ends.acceptor);
  EXPECT_TRUE(waiter.wait(0)) << "the posted receive";
  ASSERT_TRUE(poll_until({a.get(), b.get()}, [&] { return b->arrived.size() == 1; }));
}

TEST_P(TransportContract, ASendWakesItsOwnLoop) {
  const auto a = make_node(), b = make_node();
  const Ends ends = join(*a, *b);
  b->receive(ends.acceptor);
  poll_until_quiet({a.get(), b.get()});
  Waiter waiter(a->transport());
  Code code = Code::kBusy;
  while (code == Code::kBusy) code = a->try_send(ends.opener, 1, 10);
  EXPECT_TRUE(waiter.wait(0));
}

TEST_P(TransportContract, AnIdleTransportSleeps) {
  const auto a = make_node(), b = make_node();
  const Ends ends = join(*a, *b);
  b->receive(ends.acceptor);
  poll_until_quiet({a.get(), b.get()});
  Waiter waiter(b->transport());
  EXPECT_TRUE(falls_asleep(*b, waiter));
}

TEST_P(TransportContract, ADisconnectWakesBothSides) {
  const auto a = make_node(), b = make_node();
  const Ends ends = join(*a, *b);
  poll_until_quiet({a.get(), b.get()});
  Waiter at_a(a->transport()), at_b(b->transport());
  a->transport().disconnect(ends.opener);
  EXPECT_TRUE(sleep_until(*a, at_a, [&] { return a->closed.contains(ends.opener.index); }));
  EXPECT_TRUE(sleep_until(*b, at_b, [&] { return b->closed.contains(ends.acceptor.index); }));
}

}  // namespace
}  // namespace gradbus
