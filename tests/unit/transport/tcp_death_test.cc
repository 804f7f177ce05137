// A TCP peer that is killed, frozen, or only slow; and addresses that are not to be had.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transport/net/address.h"
#include "transport/tcp/tcp.h"
#include "unit/transport/raw_peer.h"

namespace gradbus {
namespace {

// A process with a transport of its own that connects to us. It is forked before this process opens
// any socket, so that it holds no copy of one.
class ChildAgent {
 public:
  explicit ChildAgent(const std::function<void(const std::string& address)>& main) {
    EXPECT_EQ(pipe(pipe_), 0);
    pid_ = fork();
    if (pid_ != 0) return;
    close(pipe_[1]);
    char address[128] = {};
    if (read(pipe_[0], address, sizeof(address) - 1) > 0) main(address);
    _exit(0);
  }
  ~ChildAgent() {
    close(pipe_[0]);
    close(pipe_[1]);
    signal_now(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  void start(Node& node) {
    const std::string address = node.transport().local_address();
    EXPECT_EQ(write(pipe_[1], address.data(), address.size()),
              static_cast<ssize_t>(address.size()));
  }
  void signal_now(int signal) const { kill(pid_, signal); }

 private:
  int pipe_[2] = {};
  pid_t pid_ = -1;
};

// Connects, then sends up to `frames` and takes what comes, until it is killed; at most a minute.
void talk(const std::string& address, uint64_t frames) {
  const auto node = tcp_node(30'000, 2);
  const LinkId link = node->transport().connect(address, hello_header(1)).take();
  node->keep_receiving();
  node->receive(link, 4);
  const Nanos deadline = monotonic_now() + 60 * kSecond;
  for (uint64_t seed = 1; monotonic_now() < deadline; ++seed) {
    if (seed <= frames) node->send(link, seed, 50000);
    node->poll();
  }
}

// Two seconds are promised; a machine that is busy with other things gets more.
constexpr Nanos kToldWithin = 10 * kSecond;

// Of a connection of either kind: through shared memory, or through TCP.
class TcpDeathOf : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Links, TcpDeathOf, testing::Values(true, false),
                         [](const auto& one) { return one.param ? "local" : "sockets"; });

TEST_P(TcpDeathOf, AKilledPeerIsTold) {
  ChildAgent child([](const std::string& address) { talk(address, UINT64_MAX); });
  const auto node = tcp_node(1500, 2, GetParam());
  child.start(*node);
  ASSERT_TRUE(poll_until({node.get()}, [&] { return !node->accepted.empty(); }));
  const LinkId link = node->accepted[0].link;
  node->keep_receiving();
  node->receive(link, 4);
  for (uint64_t seed = 0; seed < 100; ++seed) node->send(link, seed, 1 << 16);
  ASSERT_TRUE(poll_until({node.get()}, [&] { return node->arrived.size() > 20; }));
  child.signal_now(SIGKILL);
  ASSERT_TRUE(poll_until(
      {node.get()}, [&] { return node->closed.contains(link.index); }, kToldWithin));
  EXPECT_EQ(node->outstanding(), 0u);
  EXPECT_TRUE(node->all_whole());
  EXPECT_THAT(node->transport().link_error(link), testing::HasSubstr("GB-P102"));
}

TEST_P(TcpDeathOf, AKilledPeerIsToldAlsoWhenItsFramesAreNotWanted) {
  ChildAgent child([](const std::string& address) { talk(address, 1); });
  const auto node = tcp_node(1500, 2, GetParam());
  child.start(*node);
  ASSERT_TRUE(poll_until({node.get()}, [&] { return !node->accepted.empty(); }));
  const LinkId link = node->accepted[0].link;
  const Nanos busy_until = monotonic_now() + 300 * kMillisecond;
  poll_until({node.get()}, [&] { return monotonic_now() > busy_until; });
  child.signal_now(SIGKILL);
  ASSERT_TRUE(poll_until(
      {node.get()}, [&] { return node->closed.contains(link.index); }, kToldWithin));
}

// Fills the link until neither the peer's buffer nor ours takes more.
uint64_t fill(Node& node, LinkId link) {
  uint64_t sent = 0;
  for (int i = 0; i < 16; ++i) {  // MiB; the kernel takes about nine
    sent += node.try_send(link, sent + 1, 1 << 20) == Code::kOk;
    node.poll();
  }
  poll_until_quiet({&node});
  return sent;
}

// The kernel alone would end this link after the peer timeout: its window is closed that long.
TEST_P(TcpDeathOf, APeerThatIsSlowToReadIsNotDead) {
  const auto a = tcp_node(3000, 1, GetParam()), b = tcp_node(3000);
  const Ends ends = join(*a, *b);
  const uint64_t sent = fill(*a, ends.opener);
  const Nanos stalled_until = monotonic_now() + 8 * kSecond;
  poll_until({a.get()}, [&] { return monotonic_now() > stalled_until; });
  ASSERT_FALSE(a->closed.contains(ends.opener.index)) << a->transport().link_error(ends.opener);
  b->keep_receiving();
  b->receive(ends.acceptor, 4);
  ASSERT_TRUE(poll_until({a.get(), b.get()}, [&] { return b->arrived.size() == sent; }));
  EXPECT_TRUE(b->all_whole());
}

TEST_P(TcpDeathOf, APeerThatNeverReadsIsGivenUp) {
  const auto a = tcp_node(50, 1, GetParam()), b = tcp_node(30'000);
  const Ends ends = join(*b, *a);  // the opener is the one that has the time for it
  fill(*a, ends.acceptor);
  ASSERT_TRUE(poll_until({a.get()}, [&] { return a->closed.contains(ends.acceptor.index); }));
  EXPECT_EQ(a->closed.at(ends.acceptor.index), Code::kPeerLost);
  EXPECT_THAT(a->transport().link_error(ends.acceptor), testing::HasSubstr("timed out"));
}

TEST(TcpDeath, APortInUseIsNamed) {
  const auto node = tcp_node();
  TransportOptions options;
  options.bind_address = node->transport().local_address();
  const auto second = TcpTransport::create(options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::kUnavailable);
  EXPECT_THAT(second.status().message(), testing::HasSubstr("GB-D603"));
  EXPECT_THAT(second.status().message(), testing::HasSubstr(options.bind_address));
}

TEST(TcpDeath, AnAddressOfAnotherMachineCannotBeListenedOn) {
  TransportOptions options;
  options.bind_address = "198.51.100.7:0";  // reserved for documentation
  const auto transport = TcpTransport::create(options);
  ASSERT_FALSE(transport.ok());
  EXPECT_THAT(transport.status().message(), testing::HasSubstr("GB-D603"));
}

TEST(TcpDeath, OptionsOutOfRangeAreRefused) {
  const auto refused = [](const std::function<void(TransportOptions&)>& change) {
    TransportOptions options;
    change(options);
    const auto transport = TcpTransport::create(options);
    return !transport.ok() && transport.status().message().starts_with("GB-F100");
  };
  EXPECT_TRUE(refused([](auto& options) { options.streams = 0; }));
  EXPECT_TRUE(refused([](auto& options) { options.streams = 17; }));
  EXPECT_TRUE(refused([](auto& options) { options.posts_max = 0; }));
  EXPECT_TRUE(refused([](auto& options) { options.posts_max = 65537; }));
  EXPECT_TRUE(refused([](auto& options) { options.peer_timeout_ms = 0; }));
  EXPECT_TRUE(refused([](auto& options) { options.bind_address = "no:such:thing"; }));
}

TEST(TcpDeath, ABadAddressToConnectToIsRefusedAtOnce) {
  const auto node = tcp_node();
  for (const char* address : {"", "127.0.0.1", "127.0.0.1:0", "localhost:80", "127.0.0.1:70000"}) {
    const auto link = node->transport().connect(address, hello_header(1));
    ASSERT_FALSE(link.ok()) << address;
    EXPECT_THAT(link.status().message(), testing::HasSubstr("GB-F100"));
  }
}

TEST(TcpDeath, LinksWorkOverIpv6) {
  TransportOptions options;
  options.bind_address = "[::1]:0";
  auto first = TcpTransport::create(options);
  if (!first.ok()) GTEST_SKIP() << "this machine has no IPv6: " << first.status().message();
  Node a(first.take()), b(TcpTransport::create(options).take());
  EXPECT_TRUE(a.transport().local_address().starts_with("[::1]:"));
  const Ends ends = join(a, b);
  b.receive(ends.acceptor);
  a.send(ends.opener, 1, 5000);
  EXPECT_TRUE(poll_until({&a, &b}, [&] { return b.arrived.size() == 1; }));
}

TEST(TcpDeath, AWildcardReportsAnAddressThatPeersCanUse) {
  TransportOptions options;
  options.bind_address = "0.0.0.0:0";
  Node a(TcpTransport::create(options).take()), b(TcpTransport::create(options).take());
  EXPECT_FALSE(b.transport().local_address().starts_with("0.0.0.0"));
  join(a, b);
  EXPECT_EQ(b.accepted.size(), 1u);
}

}  // namespace
}  // namespace gradbus
