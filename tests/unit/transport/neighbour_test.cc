// Links between processes of one machine: which way they take, and neighbours that are not what
// they seem. What every link does is in the contract suite and in tcp_death_test.cc.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <thread>

#include "transport/net/local_socket.h"
#include "transport/tcp/tcp.h"
#include "unit/transport/raw_peer.h"

namespace gradbus {
namespace {

std::unique_ptr<Node> node_with(bool local_links) {
  TransportOptions options;
  options.peer_timeout_ms = 30'000;
  options.local_links = local_links;
  return std::make_unique<Node>(TcpTransport::create(options).take());
}

// Bytes that went through shared memory when 5000 were sent each way.
uint64_t shared_bytes(Node& a, Node& b) {
  const Ends ends = join(a, b);
  a.receive(ends.opener);
  b.receive(ends.acceptor);
  a.send(ends.opener, 1, 5000);
  b.send(ends.acceptor, 2, 5000);
  EXPECT_TRUE(poll_until({&a, &b}, [&] { return a.arrived.size() == 1 && b.arrived.size() == 1; }));
  EXPECT_TRUE(a.all_whole() && b.all_whole());
  return a.transport().totals().shared_bytes + b.transport().totals().shared_bytes;
}

TEST(Neighbours, ShareMemoryWhereBothWantTo) {
  for (const bool opener : {false, true}) {
    for (const bool acceptor : {false, true}) {
      const auto a = node_with(opener), b = node_with(acceptor);
      EXPECT_EQ(shared_bytes(*a, *b), opener && acceptor ? 10'000u : 0u) << opener << acceptor;
    }
  }
}

SocketAddress address_of(Node& node) {
  return parse_peer_address(node.transport().local_address()).take();
}

TEST(Neighbours, ATakenNameLeavesTcp) {
  const auto a = node_with(true), b = node_with(false);
  const Fd squatter = listen_locally(address_of(*b));
  ASSERT_TRUE(squatter.valid());
  EXPECT_FALSE(listen_locally(address_of(*b)).valid());
  // Ours, so it is trusted, but it never answers: its queue is full before long.
  std::vector<Fd> waiting;
  for (int i = 0; i < 1000; ++i) waiting.push_back(connect_locally(address_of(*b)));
  EXPECT_FALSE(waiting.back().valid());
  EXPECT_EQ(shared_bytes(*a, *b), 0u);
}

// Another user who takes the name of an address gets nobody's gradients.
TEST(Neighbours, AnotherUsersNameIsNotBelieved) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody else";
  const auto a = node_with(true), b = node_with(false);
  const SocketAddress address = address_of(*b);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t squatter = fork();
  if (squatter == 0) {
    close(ready[0]);
    if (setuid(65'534) != 0) _exit(1);
    const Fd fd = listen_locally(address);
    (void)!write(ready[1], fd.valid() ? "y" : "n", 1);
    sleep(60);
    _exit(0);
  }
  close(ready[1]);
  char listens = 'n';
  EXPECT_EQ(read(ready[0], &listens, 1), 1);
  EXPECT_EQ(listens, 'y');
  close(ready[0]);
  EXPECT_FALSE(connect_locally(address).valid());
  EXPECT_EQ(shared_bytes(*a, *b), 0u);
  kill(squatter, SIGKILL);
  waitpid(squatter, nullptr, 0);
}

// Another user is not heard. It would be able to send what keeps this thread busy.
TEST(Neighbours, AnotherUserIsTurnedAway) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody else";
  const auto node = node_with(true);
  const std::string name = "gradbus-local-1-" + node->transport().local_address();
  const pid_t intruder = fork();
  if (intruder == 0) {
    if (setuid(65'534) != 0) _exit(1);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) _exit(2);
    char byte = 0;
    _exit(recv(fd.get(), &byte, 1, 0) == 0 ? 0 : 3);
  }
  int status = -1;
  EXPECT_TRUE(poll_until({node.get()}, [&] { return waitpid(intruder, &status, WNOHANG) > 0; }));
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(node->accepted.empty());
}

// A neighbour made of one plain socket and of memory that it still has.
struct RawNeighbour {
  explicit RawNeighbour(Node& node) : peer(connect_locally(address_of(node))) {}
  bool greet(int memory) const {
    const FrameHeader hello = pack_greeting(greeting_of(random_nonce(), 0, 1));
    return send_with_fd(peer.fd(), std::as_bytes(std::span(&hello, 1)), memory);
  }
  RawPeer peer;
};

Fd memory_of(size_t bytes, int seals) {
  Fd fd(memfd_create("raw-neighbour", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

TEST(Neighbours, MemoryThatCannotBeTrustedIsNotTaken) {
  constexpr int kSealed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const auto node = node_with(true);
  const Fd none, loose = memory_of(RingPair::kSegmentBytes, 0);
  const Fd small = memory_of(4096, kSealed),
           large = memory_of(2 * RingPair::kSegmentBytes, kSealed);
  const Fd no_memory(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const Fd* memory : {&none, &loose, &small, &large, &no_memory}) {
    RawNeighbour neighbour(*node);
    ASSERT_TRUE(neighbour.greet(memory->get()));
    EXPECT_TRUE(poll_until({node.get()}, [&] { return neighbour.peer.is_closed(); }));
  }
  EXPECT_TRUE(node->accepted.empty());
  const Fd good = memory_of(RingPair::kSegmentBytes, kSealed);
  RawNeighbour neighbour(*node);
  ASSERT_TRUE(neighbour.greet(good.get()));
  EXPECT_TRUE(poll_until({node.get()}, [&] { return node->accepted.size() == 1; }));
}

TEST(Neighbours, MemoryThatIsBrokenLaterEndsTheLink) {
  const auto node = node_with(true);
  const auto segment = Segment::create("raw-neighbour", RingPair::kSegmentBytes).take();
  RawNeighbour neighbour(*node);
  ASSERT_TRUE(neighbour.greet(segment->fd()));
  ASSERT_TRUE(poll_until({node.get()}, [&] { return node->accepted.size() == 1; }));
  const LinkId link = node->accepted[0].link;
  reinterpret_cast<RingWords*>(segment->at(0))->tail = ~uint64_t{0};
  neighbour.peer.send(std::vector(1, std::byte{1}));
  ASSERT_TRUE(poll_until({node.get()}, [&] { return node->closed.contains(link.index); }));
  EXPECT_EQ(node->closed.at(link.index), Code::kCorrupt);
  EXPECT_THAT(node->transport().link_error(link), testing::HasSubstr("GB-D601"));
}

// More bells than the socket holds, of a neighbour that never listens to ours.
TEST(Neighbours, BellsThatNobodyHearsAreNoBytes) {
  const auto a = node_with(true), b = node_with(true);
  const Ends ends = join(*a, *b);
  b->keep_receiving();
  b->receive(ends.acceptor, 4);
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    a->send(ends.opener, seed, 10);
    ASSERT_TRUE(poll_until({b.get(), a.get()}, [&] { return b->arrived.size() == seed; }));
  }
  EXPECT_TRUE(b->all_whole());
}

// A neighbour that rings as fast as it can occupies nobody.
TEST(Neighbours, BellsWithoutEndEndTheLink) {
  const auto node = node_with(true);
  const auto segment = Segment::create("raw-neighbour", RingPair::kSegmentBytes).take();
  RawNeighbour neighbour(*node);
  ASSERT_TRUE(neighbour.greet(segment->fd()));
  ASSERT_TRUE(poll_until({node.get()}, [&] { return node->accepted.size() == 1; }));
  const LinkId link = node->accepted[0].link;
  std::jthread ringing([&](const std::stop_token& stop) {
    const std::vector<std::byte> bells(1 << 16, std::byte{1});
    while (!stop.stop_requested() && (send(neighbour.peer.fd(), bells.data(), bells.size(),
                                           MSG_NOSIGNAL | MSG_DONTWAIT) > 0 ||
                                      errno == EAGAIN)) {
    }
  });
  ASSERT_TRUE(poll_until({node.get()}, [&] { return node->closed.contains(link.index); }));
  EXPECT_EQ(node->closed.at(link.index), Code::kCorrupt);
}

}  // namespace
}  // namespace gradbus
