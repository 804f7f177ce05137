// How a TCP link begins when the other side is no Gradbus agent, another version of one, or slow.
#include <dirent.h>
#include <gmock/gmock.h>

#include <random>

#include "transport/tcp/pending_connections.h"
#include "unit/transport/raw_peer.h"

namespace gradbus {
namespace {

size_t open_descriptors() {
  DIR* directory = opendir("/proc/self/fd");
  size_t count = 0;
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

// Of nodes whose deadlines are three times as long, so that it was none of those.
constexpr Nanos kAtOnce = 10 * kSecond;

// The peer is closed before the hello's deadline would do it, and no link came of it.
void expect_refused_at_once(Node& node, RawPeer& peer) {
  EXPECT_TRUE(poll_until(
      {&node}, [&] { return peer.is_closed(); }, kAtOnce));
  EXPECT_TRUE(node.accepted.empty());
}

TEST(TcpGreeting, GarbageIsClosedAtOnceAndHarmsNobody) {
  const auto node = tcp_node(30'000), friendly = tcp_node();
  std::mt19937_64 random(7);
  for (int i = 0; i < 20; ++i) {
    RawPeer intruder(*node);
    std::vector<std::byte> bytes(64 + random() % 1000);
    for (std::byte& one : bytes) one = static_cast<std::byte>(random());
    intruder.send(bytes);
    expect_refused_at_once(*node, intruder);
  }
  const Ends ends = join(*friendly, *node);
  node->receive(ends.acceptor);
  friendly->send(ends.opener, 1, 100);
  EXPECT_TRUE(poll_until({node.get(), friendly.get()}, [&] { return node->arrived.size() == 1; }));
}

TEST(TcpGreeting, AnHttpRequestIsClosedAtOnce) {
  const auto node = tcp_node(30'000);
  RawPeer browser(*node);
  const std::string request =
      "GET / HTTP/1.1\r\nHost: gradbus\r\nUser-Agent: a browser that took the wrong port\r\n\r\n";
  browser.send(std::as_bytes(std::span(request)));
  expect_refused_at_once(*node, browser);
}

TEST(TcpGreeting, EveryFlippedBitOfAHelloIsRefused) {
  const auto node = tcp_node(30'000);
  const FrameHeader good = pack_greeting(greeting_of(99, 0, 1));
  for (size_t bit = 0; bit < 8 * sizeof(good); ++bit) {
    FrameHeader bad = good;
    reinterpret_cast<uint8_t*>(&bad)[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    RawPeer peer(*node);
    peer.send(bad);
    expect_refused_at_once(*node, peer);
  }
}

// Well-formed frames that are no hello of ours.
TEST(TcpGreeting, WrongFieldsAreRefused) {
  const auto node = tcp_node(30'000);
  const auto refused = [&](FrameHeader frame) {
    seal_frame(frame, {});
    RawPeer peer(*node);
    peer.send(frame);
    expect_refused_at_once(*node, peer);
  };
  const FrameHeader good = pack_greeting(greeting_of(99, 0, 1));
  FrameHeader other_version = good;
  other_version.version = kFrameVersion + 1;
  refused(other_version);
  refused(data_header(1));
  for (const uint32_t chunk : {0u, 0u | (17u << 16), 1u | (1u << 16), 0xffffu | (2u << 16),
                               0u | (1u << 16) | (1u << 31)}) {
    FrameHeader frame = good;
    frame.chunk = chunk;
    refused(frame);
  }
}

TEST(TcpGreeting, HalfAHelloIsClosedAtTheDeadlineNotBefore) {
  const auto node = tcp_node(400);
  RawPeer peer(*node);
  const FrameHeader hello = pack_greeting(greeting_of(1, 0, 1));
  peer.send(std::as_bytes(std::span(&hello, 1)).first(30));
  const Nanos start = monotonic_now();
  EXPECT_TRUE(poll_until({node.get()}, [&] { return peer.is_closed(); }));
  EXPECT_GE(monotonic_now() - start, 350 * kMillisecond);
  EXPECT_TRUE(node->accepted.empty());
}

TEST(TcpGreeting, AHelloMayComeInTwoHalves) {
  const auto node = tcp_node();
  RawPeer peer(*node);
  const FrameHeader hello = pack_greeting(greeting_of(1, 0, 1));
  peer.send(std::as_bytes(std::span(&hello, 1)).first(30));
  poll_until_quiet({node.get()});
  peer.send(std::as_bytes(std::span(&hello, 1)).subspan(30));
  EXPECT_TRUE(poll_until({node.get()}, [&] { return node->accepted.size() == 1; }));
}

TEST(TcpGreeting, ALinkWithAMissingStreamIsClosedAtTheDeadline) {
  const auto node = tcp_node(300);
  RawPeer first(*node), intruder(*node);
  first.send(pack_greeting(greeting_of(11, 0, 2)));
  intruder.send(pack_greeting(greeting_of(12, 1, 2)));  // another link's
  EXPECT_TRUE(poll_until({node.get()}, [&] { return first.is_closed() && intruder.is_closed(); }));
  EXPECT_TRUE(node->accepted.empty());
}

TEST(TcpGreeting, StreamsMayComeInAnyOrder) {
  const auto node = tcp_node();
  RawPeer second(*node), first(*node);
  second.send(pack_greeting(greeting_of(11, 1, 2)));
  poll_until_quiet({node.get()});
  EXPECT_TRUE(node->accepted.empty());
  first.send(pack_greeting(greeting_of(11, 0, 2)));
  EXPECT_TRUE(poll_until({node.get()}, [&] { return node->accepted.size() == 1; }));
}

TEST(TcpGreeting, ASecondConnectionOfOneIndexIsRefused) {
  const auto node = tcp_node(30'000);
  RawPeer one(*node), other(*node);
  one.send(pack_greeting(greeting_of(11, 0, 2)));
  other.send(pack_greeting(greeting_of(11, 0, 2)));
  EXPECT_TRUE(poll_until(
      {node.get()}, [&] { return one.is_closed() || other.is_closed(); }, kAtOnce));
  EXPECT_NE(one.is_closed(), other.is_closed()) << "whichever was heard first stays";
  EXPECT_TRUE(node->accepted.empty());
}

// They need no key: a greeting says nothing that its sender must know.
TEST(TcpGreeting, ManyHalfLinksKeepNobodyOut) {
  const auto node = tcp_node(30'000), friendly = tcp_node();
  std::vector<std::unique_ptr<RawPeer>> halves;
  for (size_t i = 0; i < kPendingConnectionsMax + 50; ++i) {
    halves.push_back(std::make_unique<RawPeer>(*node));
    halves.back()->send(pack_greeting(greeting_of(1000 + i, 0, 2)));
    poll_until_quiet({node.get()});
  }
  EXPECT_TRUE(halves.front()->is_closed());
  join(*friendly, *node);
  EXPECT_EQ(node->accepted.size(), 1u);
}

TEST(TcpGreeting, ManySilentConnectionsKeepNobodyOut) {
  const auto node = tcp_node(600), friendly = tcp_node();
  const size_t before = open_descriptors();
  {
    std::vector<std::unique_ptr<RawPeer>> silent;
    for (int i = 0; i < 400; ++i) {
      silent.push_back(std::make_unique<RawPeer>(*node));
      node->poll();
    }
    poll_until_quiet({node.get()});
    EXPECT_LE(open_descriptors(), before + silent.size() + kPendingConnectionsMax);
    join(*friendly, *node);
    EXPECT_EQ(node->accepted.size(), 1u);
    for (auto& peer : silent) {
      EXPECT_TRUE(poll_until({node.get()}, [&] { return peer->is_closed(); }));
    }
  }
  EXPECT_EQ(open_descriptors(), before + 2);  // the two ends of the friendly link
}

// ---- the opener's side ----

struct Refusal {
  Code code = Code::kOk;
  std::string text;
  Nanos took = 0;
};

Refusal refused_link(Node& node, LinkId link, Nanos start) {
  EXPECT_TRUE(poll_until(
      {&node}, [&] { return node.closed.contains(link.index); }, kAtOnce));
  EXPECT_TRUE(node.connected.empty());
  return {node.closed[link.index], node.transport().link_error(link), monotonic_now() - start};
}

TEST(TcpGreeting, APeerThatNeverAnswersIsGivenUpAtTheDeadline) {
  const auto node = tcp_node(400, 2);
  RawListener frozen;  // the kernel connects for it; the process does nothing
  const Nanos start = monotonic_now();
  const LinkId link = node->transport().connect(frozen.address(), hello_header(1)).take();
  node->send(link, 1, 100);
  const Refusal refusal = refused_link(*node, link, start);
  EXPECT_EQ(refusal.code, Code::kUnavailable);
  EXPECT_THAT(refusal.text, testing::HasSubstr("GB-D604"));
  EXPECT_THAT(refusal.text, testing::HasSubstr(frozen.address()));
  EXPECT_GE(refusal.took, 350 * kMillisecond);
  EXPECT_EQ(node->ended_sends[Code::kUnavailable], 1u);
}

TEST(TcpGreeting, APeerThatClosesInsteadOfAnsweringIsNamed) {
  const auto node = tcp_node(30'000);
  RawListener listener;
  const LinkId link = node->transport().connect(listener.address(), hello_header(1)).take();
  listener.accept(*node);  // and closes
  const Refusal refusal = refused_link(*node, link, monotonic_now());
  EXPECT_EQ(refusal.code, Code::kUnavailable);
  EXPECT_THAT(refusal.text, testing::HasSubstr(listener.address()));
}

TEST(TcpGreeting, AnAnswerOfAnotherVersionSaysSo) {
  const auto node = tcp_node(30'000);
  RawListener listener;
  const LinkId link = node->transport().connect(listener.address(), hello_header(1)).take();
  RawPeer peer = listener.accept(*node);
  FrameHeader answer = pack_greeting(greeting_of(1, 0, 1));
  answer.version = kFrameVersion + 1;
  seal_frame(answer, {});
  peer.send(answer);
  const Refusal refusal = refused_link(*node, link, monotonic_now());
  EXPECT_EQ(refusal.code, Code::kVersion);
  EXPECT_THAT(refusal.text, testing::HasSubstr("GB-V801"));
}

TEST(TcpGreeting, ItsOwnHelloThrownBackIsNoAnswer) {
  const auto node = tcp_node(30'000);
  RawListener echo;
  const LinkId link = node->transport().connect(echo.address(), hello_header(1)).take();
  RawPeer peer = echo.accept(*node);
  std::vector<std::byte> hello;
  ASSERT_TRUE(poll_until({node.get()}, [&] { return !(hello = peer.received()).empty(); }));
  peer.send(hello);
  const Refusal refusal = refused_link(*node, link, monotonic_now());
  EXPECT_THAT(refusal.text, testing::HasSubstr("another link"));
}

TEST(TcpGreeting, AnAnswerToAnotherNonceIsRefused) {
  const auto node = tcp_node(30'000);
  RawListener listener;
  const LinkId link = node->transport().connect(listener.address(), hello_header(1)).take();
  RawPeer peer = listener.accept(*node);
  Greeting answer = greeting_of(1234, 0, 1);
  answer.answer = true;
  peer.send(pack_greeting(answer));
  EXPECT_THAT(refused_link(*node, link, monotonic_now()).text, testing::HasSubstr("another link"));
}

TEST(TcpGreeting, ADisconnectBeforeTheAnswerEndsThePosts) {
  const auto node = tcp_node(30'000);
  RawListener listener;
  const LinkId link = node->transport().connect(listener.address(), hello_header(1)).take();
  node->send(link, 1, 10);
  node->receive(link);
  node->transport().disconnect(link);
  EXPECT_TRUE(poll_until({node.get()}, [&] { return node->closed.contains(link.index); }));
  EXPECT_EQ(node->outstanding(), 0u);
}

TEST(TcpGreeting, FramesPostedBeforeTheAnswerAreSentAfterIt) {
  const auto a = tcp_node(), b = tcp_node();
  const LinkId link = a->connect_to(*b);
  for (uint64_t seed = 1; seed <= 5; ++seed) a->send(link, seed, 1000);
  ASSERT_TRUE(poll_until({a.get(), b.get()}, [&] { return b->accepted.size() == 1; }));
  b->receive(b->accepted[0].link, 5);
  EXPECT_TRUE(poll_until({a.get(), b.get()}, [&] { return b->arrived.size() == 5; }));
}

}  // namespace
}  // namespace gradbus
