// Links of the RDMA backend whose device does what no healthy one does: a test double ends work as
// a test says. Both ends of a link are in this process and meet over real sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/transport_node.h"
#include "transport/rdma/hello.h"
#include "transport/rdma/rdma.h"
#include "unit/transport/verbs_double.h"

namespace gradbus {
namespace {

using testing::HasSubstr;

class RdmaLinks : public testing::Test {
 protected:
  std::unique_ptr<Node> make_node(uint32_t peer_timeout_ms = 30'000, uint32_t queue_pairs = 1) {
    TransportOptions options;
    options.peer_timeout_ms = peer_timeout_ms;
    options.queue_pairs = queue_pairs;
    auto transport = RdmaTransport::create(verbs_.library(), options);
    EXPECT_TRUE(transport.ok()) << transport.status().message();
    return std::make_unique<Node>(transport.take(), 8);
  }
  // The opener makes its queue pair first.
  VerbsDouble::Pair& openers_pair() { return *verbs_.pairs.at(0); }
  VerbsDouble::Pair& acceptors_pair() { return *verbs_.pairs.at(1); }

  VerbsDouble verbs_;
};

TEST_F(RdmaLinks, OneCompletionEndsAllSendsBeforeIt) {
  const auto a = make_node(), b = make_node();
  const Ends ends = join(*a, *b);
  for (uint64_t seed = 1; seed <= 3; ++seed) a->send(ends.opener, seed, 500);
  a->poll();
  ASSERT_EQ(openers_pair().sends.size(), 3u);
  VerbsDouble::end_sends(openers_pair(), 2, IBV_WC_SUCCESS);
  poll_until_quiet({a.get()});
  EXPECT_EQ(a->ended_sends[Code::kOk], 0u) << "unsignalled sends say nothing by themselves";
  VerbsDouble::end_sends(openers_pair(), 1, IBV_WC_SUCCESS);
  ASSERT_TRUE(poll_until({a.get()}, [&] { return a->ended_sends[Code::kOk] == 3; }));
}

TEST_F(RdmaLinks, SendsBeforeAFailedOneArrivedThoseAfterItDidNot) {
  const auto a = make_node(), b = make_node();
  const Ends ends = join(*a, *b);
  for (uint64_t seed = 1; seed <= 5; ++seed) a->send(ends.opener, seed, 500);
  a->poll();
  VerbsDouble::end_sends(openers_pair(), 2, IBV_WC_SUCCESS);
  VerbsDouble::end_sends(openers_pair(), 1, IBV_WC_RETRY_EXC_ERR);
  ASSERT_TRUE(poll_until({a.get()}, [&] { return a->closed.contains(ends.opener.index); }));
  EXPECT_EQ(a->ended_sends[Code::kOk], 2u);
  EXPECT_EQ(a->ended_sends[Code::kPeerLost], 3u);
  EXPECT_EQ(a->closed.at(ends.opener.index), Code::kPeerLost);
  EXPECT_THAT(a->transport().link_error(ends.opener), HasSubstr("GB-P102"));
  EXPECT_THAT(a->transport().link_error(ends.opener), HasSubstr("does not acknowledge"));
}

TEST_F(RdmaLinks, ADeviceThatGivesNothingBackIsGivenUp) {
  verbs_.gives_back = false;
  const auto a = make_node(200), b = make_node();
  const Ends ends = join(*a, *b);
  a->send(ends.opener, 1, 500);
  a->receive(ends.opener, 2);
  a->poll();
  a->transport().disconnect(ends.opener);
  ASSERT_TRUE(poll_until({a.get()}, [&] { return a->closed.contains(ends.opener.index); }));
  EXPECT_EQ(a->outstanding(), 0u);
  EXPECT_TRUE(openers_pair().failed);
}

TEST_F(RdmaLinks, MemoryStaysRegisteredWhileAPostHoldsIt) {
  verbs_.gives_back = false;
  const auto a = make_node(200), b = make_node();
  const Ends ends = join(*a, *b);
  std::vector<std::byte> memory(500);
  Transport& transport = a->transport();
  const int before = verbs_.registrations;
  const RegionId region = transport.register_memory(memory).take();
  ASSERT_EQ(transport.post_receive(ends.opener, {region, 0, 500}, 99), Code::kOk);
  std::array<TransportEvent, 4> events;
  transport.poll(events);
  transport.unregister_memory(region);
  EXPECT_EQ(verbs_.registrations, before + 1);
  EXPECT_EQ(transport.post_receive(ends.opener, {region, 0, 500}, 98), Code::kInvalid);
  transport.disconnect(ends.opener);
  const Nanos deadline = monotonic_now() + kEventually;
  size_t ended = 0;
  while (ended == 0 && monotonic_now() < deadline) ended = transport.poll(events);
  ASSERT_GE(ended, 1u);
  EXPECT_EQ(events[0].token, 99u);
  EXPECT_EQ(verbs_.registrations, before - 1) << "the memory's, and the header ring's of the link";
}

TEST_F(RdmaLinks, BytesThatAreNoFrameEndTheLink) {
  const auto a = make_node(), b = make_node();
  const Ends ends = join(*a, *b);
  b->receive(ends.acceptor, 2);
  b->poll();
  VerbsDouble::end_receive(acceptors_pair(), IBV_WC_SUCCESS, 64);  // the slot holds no header
  ASSERT_TRUE(poll_until({b.get()}, [&] { return b->closed.contains(ends.acceptor.index); }));
  EXPECT_EQ(b->outstanding(), 0u);
  EXPECT_EQ(b->closed.at(ends.acceptor.index), Code::kCorrupt);
  EXPECT_THAT(b->transport().link_error(ends.acceptor), HasSubstr("GB-D601"));
}

TEST_F(RdmaLinks, ARefusedSendEndsTheLink) {
  const auto a = make_node(), b = make_node();
  const Ends ends = join(*a, *b);
  verbs_.send_refused = EINVAL;
  a->send(ends.opener, 1, 500);
  ASSERT_TRUE(poll_until({a.get()}, [&] { return a->closed.contains(ends.opener.index); }));
  EXPECT_EQ(a->ended_sends[Code::kPeerLost], 1u);
  EXPECT_THAT(a->transport().link_error(ends.opener), HasSubstr("Invalid argument"));
}

TEST_F(RdmaLinks, AQueuePairThatCannotBeMadeEndsTheLinkWithTheReason) {
  const auto a = make_node(), b = make_node();
  verbs_.pair_refused = ENOMEM;
  const LinkId link = a->connect_to(*b);
  ASSERT_TRUE(poll_until({a.get(), b.get()}, [&] { return a->closed.contains(link.index); }));
  EXPECT_THAT(a->transport().link_error(link), HasSubstr("GB-D607"));
  EXPECT_THAT(a->transport().link_error(link), HasSubstr("queue pair for 256 posts on double0"));
}

TEST_F(RdmaLinks, AGidThatLeadsNowhereEndsTheLink) {
  const auto a = make_node(), b = make_node();
  verbs_.receiver_refused = ENETUNREACH;
  const LinkId link = a->connect_to(*b);
  ASSERT_TRUE(poll_until({a.get(), b.get()}, [&] { return a->closed.contains(link.index); }));
  EXPECT_THAT(a->transport().link_error(link), HasSubstr("GB-D604"));
  EXPECT_TRUE(b->accepted.empty());
}

TEST_F(RdmaLinks, AFarewellNamesItsReason) {
  const auto a = make_node(), b = make_node();
  const Ends ends = join(*a, *b);
  b->receive(ends.acceptor);
  b->poll();
  VerbsDouble::end_receive(acceptors_pair(), IBV_WC_SUCCESS, 64);
  ASSERT_TRUE(
      poll_until({a.get(), b.get()}, [&] { return a->closed.contains(ends.opener.index); }));
  EXPECT_EQ(a->closed.at(ends.opener.index), Code::kPeerLost);
  EXPECT_THAT(a->transport().link_error(ends.opener), HasSubstr("it ended the link: corrupt"));
}

// ---- several queue pairs

constexpr uint32_t kTimeoutMs = 30'000;

TEST_F(RdmaLinks, PostsTakeTheQueuePairsInTurn) {
  const auto a = make_node(kTimeoutMs, 3), b = make_node(kTimeoutMs, 3);
  const Ends ends = join(*a, *b);
  ASSERT_EQ(verbs_.pairs.size(), 6u);
  b->receive(ends.acceptor, 2);
  b->poll();
  b->receive(ends.acceptor, 3);
  b->poll();
  for (uint64_t seed = 1; seed <= 7; ++seed) a->send(ends.opener, seed, 500);
  a->poll();
  const size_t sends[] = {3, 2, 2}, receives[] = {2, 2, 1};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(verbs_.pairs[i]->sends.size(), sends[i]) << i;
    EXPECT_EQ(verbs_.pairs[3 + i]->receives.size(), receives[i]) << i;
  }
  // Each tells of its own: what the last has sent says nothing of the others.
  VerbsDouble::end_sends(*verbs_.pairs[2], 2, IBV_WC_SUCCESS);
  ASSERT_TRUE(poll_until({a.get()}, [&] { return a->ended_sends[Code::kOk] == 2; }));
  VerbsDouble::end_sends(*verbs_.pairs[0], 3, IBV_WC_SUCCESS);
  VerbsDouble::end_sends(*verbs_.pairs[1], 2, IBV_WC_SUCCESS);
  ASSERT_TRUE(poll_until({a.get()}, [&] { return a->ended_sends[Code::kOk] == 7; }));
}

TEST_F(RdmaLinks, OneFailedQueuePairEndsTheLinkAndEveryPostOfIt) {
  const auto a = make_node(kTimeoutMs, 3), b = make_node(kTimeoutMs, 3);
  const Ends ends = join(*a, *b);
  a->receive(ends.opener, 2);
  for (uint64_t seed = 1; seed <= 6; ++seed) a->send(ends.opener, seed, 500);
  a->poll();
  VerbsDouble::end_sends(*verbs_.pairs[0], 2, IBV_WC_SUCCESS);
  VerbsDouble::end_sends(*verbs_.pairs[1], 1, IBV_WC_RETRY_EXC_ERR);
  ASSERT_TRUE(poll_until({a.get()}, [&] { return a->closed.contains(ends.opener.index); }));
  EXPECT_EQ(a->ended_sends[Code::kOk], 2u);
  EXPECT_EQ(a->ended_sends[Code::kPeerLost], 4u);
  EXPECT_EQ(a->ended_receives[Code::kPeerLost], 2u);
  EXPECT_EQ(a->outstanding(), 0u);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(verbs_.pairs[i]->failed) << i;
}

TEST_F(RdmaLinks, TheSideWithFewerQueuePairsDecides) {
  const auto a = make_node(kTimeoutMs, 4), b = make_node(kTimeoutMs, 2);
  const Ends ends = join(*a, *b);
  ASSERT_EQ(verbs_.pairs.size(), 6u) << "four offered, two taken";
  for (uint64_t seed = 1; seed <= 4; ++seed) a->send(ends.opener, seed, 500);
  a->poll();
  EXPECT_EQ(verbs_.pairs[0]->sends.size(), 2u);
  EXPECT_EQ(verbs_.pairs[1]->sends.size(), 2u);
  const Ends back = join(*b, *a);
  b->send(back.opener, 9, 500);
  b->poll();
  ASSERT_EQ(verbs_.pairs.size(), 10u) << "two offered, two taken";
  EXPECT_EQ(verbs_.pairs[6]->sends.size(), 1u);
}

// ---- notices

TEST_F(RdmaLinks, NobodyIsAskedToWakeACallerThatComesBackAnyway) {
  const auto a = make_node(), b = make_node();
  const Ends ends = join(*a, *b);
  a->send(ends.opener, 1, 500);
  a->transport().expect_polls(true);
  a->poll();
  // One that was asked for before may still be due; no more than that.
  const uint32_t asked = openers_pair().armed;
  for (int i = 0; i < 100; ++i) a->poll();
  EXPECT_EQ(openers_pair().armed, asked);
  VerbsDouble::end_sends(openers_pair(), 1, IBV_WC_SUCCESS);
  EXPECT_EQ(a->poll(), 1u) << "found all the same";
  const Ends again = join(*a, *b, 8);
  ASSERT_EQ(verbs_.pairs.size(), 4u);
  for (int i = 0; i < 100; ++i) a->poll();
  EXPECT_EQ(verbs_.pairs[2]->armed, 0u);
  a->transport().expect_polls(false);
  EXPECT_EQ(a->poll(), 0u);
  EXPECT_EQ(verbs_.pairs[2]->armed, 1u) << "now it may sleep";
  a->transport().disconnect(again.opener);
}

// ---- who touches the bytes

TEST_F(RdmaLinks, TheDeviceIsGivenTheCallersOwnBytes) {
  const auto a = make_node(), b = make_node();
  const Ends ends = join(*a, *b);
  std::vector<std::byte> memory(4096);
  const RegionId region = a->transport().register_memory(memory).take();
  for (const uint64_t bytes : {4096u, 65u, 64u}) {
    ASSERT_EQ(a->transport().post_send(ends.opener, data_header(bytes), {region, 0, bytes}, bytes),
              Code::kOk);
  }
  std::array<TransportEvent, 4> events;
  a->transport().poll(events);
  const std::deque<VerbsDouble::Request>& sends = openers_pair().requests;
  ASSERT_EQ(sends.size(), 3u);
  for (const VerbsDouble::Request& send : sends) {
    ASSERT_EQ(send.parts.size(), 2u);
    EXPECT_EQ(send.parts[1].addr, reinterpret_cast<uintptr_t>(memory.data()));
    EXPECT_EQ(send.copied, send.parts[1].length <= 64) << send.parts[1].length;
  }
  EXPECT_EQ(a->transport().totals().sent_bytes, 4096u + 65 + 64);
  EXPECT_EQ(a->transport().totals().send_copied_bytes, 64u) << "header and cache line, inline";
  ASSERT_EQ(b->transport().post_receive(
                ends.acceptor, {b->transport().register_memory(memory).take(), 0, 4096}, 1),
            Code::kOk);
  b->transport().poll(events);
  ASSERT_EQ(acceptors_pair().requests.size(), 1u);
  EXPECT_EQ(acceptors_pair().requests[0].parts[0].addr, reinterpret_cast<uintptr_t>(memory.data()));
  a->transport().disconnect(ends.opener);
  b->transport().disconnect(ends.acceptor);
}

// ---- the hello

QueuePairCard a_card() {
  QueuePairCard card;
  card.queue_pair = 17;
  card.first_psn = 0xabcdef;
  card.mtu = 3;
  card.ethernet = 1;
  return card;
}

TEST(RdmaHelloFormat, WhatIsPackedIsTaken) {
  RdmaHello message = pack_hello(hello_header(7), std::array{a_card()}, false);
  ASSERT_TRUE(check_hello(message, false).ok());
  EXPECT_EQ(message.frame.total, 7u);
  EXPECT_EQ(message.frame.chunk, 0u);
  EXPECT_EQ(message.card.first_psn, 0xabcdefu);
}

TEST(RdmaHelloFormat, SeveralQueuePairsAreNamed) {
  std::vector<QueuePairCard> cards(3, a_card());
  cards[1].queue_pair = 18;
  cards[2].first_psn = 5;
  RdmaHello message = pack_hello(hello_header(7), cards, false);
  EXPECT_EQ(message.bytes().size(), 96u + 2 * 8);
  ASSERT_TRUE(check_hello(message, false).ok());
  ASSERT_EQ(message.pairs(), 3u);
  EXPECT_EQ(message.card_of(0).queue_pair, 17u);
  EXPECT_EQ(message.card_of(1).queue_pair, 18u);
  EXPECT_EQ(message.card_of(1).first_psn, 0xabcdefu);
  EXPECT_EQ(message.card_of(2).first_psn, 5u);
  for (size_t byte = 0; byte < message.bytes().size(); ++byte) {
    RdmaHello changed = pack_hello(hello_header(7), cards, false);
    changed.bytes()[byte] ^= std::byte{0x10};
    EXPECT_FALSE(check_hello(changed, false).ok()) << byte;
  }
  cards[2].queue_pair = 1 << 24;
  message = pack_hello(hello_header(7), cards, false);
  EXPECT_FALSE(check_hello(message, false).ok());
}

TEST(RdmaHelloFormat, EveryChangedByteIsRefused) {
  for (size_t byte = 0; byte < RdmaHello::kBytesMin; ++byte) {
    RdmaHello message = pack_hello(hello_header(7), std::array{a_card()}, false);
    message.bytes()[byte] ^= std::byte{0x10};
    EXPECT_FALSE(check_hello(message, false).ok()) << byte;
  }
}

TEST(RdmaHelloFormat, ACardThatNoDeviceHasIsRefused) {
  const auto refused = [](const std::function<void(QueuePairCard&)>& change) {
    QueuePairCard card = a_card();
    change(card);
    RdmaHello message = pack_hello(hello_header(7), std::array{card}, false);
    return check_hello(message, false).code() == Code::kCorrupt;
  };
  EXPECT_FALSE(refused([](auto&) {}));
  EXPECT_TRUE(refused([](auto& card) { card.queue_pair = 1 << 24; }));
  EXPECT_TRUE(refused([](auto& card) { card.first_psn = 1 << 24; }));
  EXPECT_TRUE(refused([](auto& card) { card.mtu = 0; }));
  EXPECT_TRUE(refused([](auto& card) { card.mtu = 6; }));
  EXPECT_TRUE(refused([](auto& card) { card.ethernet = 2; }));
}

TEST(RdmaHelloFormat, AnAnswerIsNoHello) {
  RdmaHello message = pack_hello(hello_header(7), std::array{a_card()}, true);
  EXPECT_FALSE(check_hello(message, false).ok());
}

}  // namespace
}  // namespace gradbus
