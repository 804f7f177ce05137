// The promises of transport/transport.h about how a link ends, for every backend.
#include <gmock/gmock.h>

#include <algorithm>

#include "contract/transport_variants.h"

namespace gradbus {
namespace {

// A death is told within two seconds; a machine that is busy with other things gets more.
constexpr Nanos kToldWithin = 10 * kSecond;

size_t total(const std::map<Code, size_t>& counts) {
  size_t sum = 0;
  for (const auto& [code, count] : counts) sum += count;
  return sum;
}

// Fills a link from both ends with more than a socket buffer holds.
void fill(Node& a, Node& b, const Ends& ends) {
  a.receive(ends.opener, 3);
  b.receive(ends.acceptor, 3);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    a.send(ends.opener, seed, 1 << 18);
    b.send(ends.acceptor, seed, 1 << 18);
  }
  for (int i = 0; i < 20; ++i) {
    a.poll();
    b.poll();
  }
}

TEST_P(TransportContract, DisconnectEndsEveryPostThenTheLink) {
  const auto a = make_node(), b = make_node();
  const Ends ends = join(*a, *b);
  fill(*a, *b, ends);
  a->transport().disconnect(ends.opener);
  ASSERT_TRUE(poll_until({a.get(), b.get()}, [&] {
    return a->closed.contains(ends.opener.index) && b->closed.contains(ends.acceptor.index);
  }));
  for (const Node* node : {a.get(), b.get()}) {
    EXPECT_EQ(node->outstanding(), 0u);
    EXPECT_EQ(total(node->ended_sends), 60u);
    EXPECT_TRUE(node->all_whole());
  }
  EXPECT_EQ(a->closed.at(ends.opener.index), Code::kClosed);
  EXPECT_EQ(a->transport().link_error(ends.opener), "");
  EXPECT_THAT(b->transport().link_error(ends.acceptor), testing::HasSubstr("GB-P102"));
}

TEST_P(TransportContract, PostsOnAClosedLinkAreRefused) {
  const auto a = make_node(), b = make_node();
  const Ends ends = join(*a, *b);
  a->transport().disconnect(ends.opener);
  const auto settle = [](const std::function<Code()>& post) {
    Code code = Code::kBusy;
    for (int i = 0; i < 200 && code == Code::kBusy; ++i) code = post();
    return code;
  };
  EXPECT_EQ(settle([&] { return a->try_send(ends.opener, 1, 1); }), Code::kClosed);
  ASSERT_TRUE(poll_until({a.get()}, [&] { return a->closed.contains(ends.opener.index); }));
  EXPECT_EQ(settle([&] { return a->try_send(ends.opener, 1, 1); }), Code::kClosed);
  EXPECT_EQ(settle([&] { return a->try_receive(ends.opener); }), Code::kClosed);
  a->transport().disconnect(ends.opener);  // once more: harmless
  a->transport().disconnect(LinkId{12345});
  poll_until_quiet({a.get(), b.get()});
  EXPECT_EQ(a->closed.size(), 1u);
}

TEST_P(TransportContract, TheSurvivorOfADestroyedPeerIsTold) {
  const auto a = make_node(), b = make_node();
  const Ends ends = join(*a, *b);
  fill(*a, *b, ends);
  b->destroy();
  ASSERT_TRUE(poll_until(
      {a.get()}, [&] { return a->closed.contains(ends.opener.index); }, kToldWithin));
  EXPECT_EQ(a->outstanding(), 0u);
  EXPECT_EQ(total(a->ended_sends), 60u);
  EXPECT_TRUE(a->all_whole());
  EXPECT_THAT(a->transport().link_error(ends.opener), testing::HasSubstr("GB-P102"));
}

TEST_P(TransportContract, WhatWasReportedAsSentArrivesAfterADisconnect) {
  const auto a = make_node(), b = make_node();
  const Ends ends = join(*a, *b);
  b->receive(ends.acceptor, 16);
  // Unread bytes on the closing side must not turn the close into a reset.
  for (uint64_t seed = 0; seed < 16; ++seed) b->send(ends.acceptor, seed, 2000);
  for (uint64_t seed = 0; seed < 16; ++seed) a->send(ends.opener, seed, 60000);
  ASSERT_TRUE(poll_until({a.get(), b.get()}, [&] { return a->ended_sends[Code::kOk] == 16; }));
  a->transport().disconnect(ends.opener);
  ASSERT_TRUE(
      poll_until({a.get(), b.get()}, [&] { return b->closed.contains(ends.acceptor.index); }));
  EXPECT_EQ(b->arrived.size(), 16u);
  EXPECT_TRUE(b->all_whole());
  EXPECT_EQ(b->closed.at(ends.acceptor.index), Code::kClosed);
}

TEST_P(TransportContract, NobodyAtTheAddressIsAClosedLinkThatNamesIt) {
  const auto a = make_node();
  auto b = make_node();
  const std::string address = b->transport().local_address();
  b.reset();
  const LinkId link = a->transport().connect(address, hello_header(1)).take();
  ASSERT_TRUE(poll_until({a.get()}, [&] { return a->closed.contains(link.index); }));
  EXPECT_EQ(a->closed.at(link.index), Code::kUnavailable);
  EXPECT_TRUE(a->connected.empty());
  EXPECT_THAT(a->transport().link_error(link), testing::HasSubstr("GB-D604"));
  EXPECT_THAT(a->transport().link_error(link), testing::HasSubstr(address));
}

TEST_P(TransportContract, AFrameThatItsReceiveCannotHoldEndsTheLink) {
  const auto a = make_node(), b = make_node();
  const Ends ends = join(*a, *b);
  while (b->try_receive(ends.acceptor, 64) == Code::kBusy) b->poll();
  a->send(ends.opener, 1, 1);
  ASSERT_TRUE(poll_until({a.get(), b.get()}, [&] {
    return a->closed.contains(ends.opener.index) && b->closed.contains(ends.acceptor.index);
  }));
  EXPECT_EQ(b->closed.at(ends.acceptor.index), Code::kCorrupt);
  EXPECT_EQ(b->ended_receives[Code::kCorrupt], 1u);
  EXPECT_THAT(b->transport().link_error(ends.acceptor), testing::HasSubstr("GB-D601"));
  EXPECT_THAT(b->transport().link_error(ends.acceptor), testing::HasSubstr("length"));
}

TEST_P(TransportContract, OneLinksEndLeavesTheOthers) {
  const auto a = make_node(), b = make_node();
  const Ends first = join(*a, *b, 1);
  const Ends second = join(*a, *b, 2);
  a->transport().disconnect(first.opener);
  b->receive(second.acceptor);
  a->send(second.opener, 5, 5000);
  ASSERT_TRUE(poll_until({a.get(), b.get()}, [&] {
    return b->arrived.size() == 1 && b->closed.contains(first.acceptor.index);
  }));
  EXPECT_FALSE(b->closed.contains(second.acceptor.index));
}

TEST_P(TransportContract, LinksMayComeAndGoManyTimes) {
  const auto a = make_node({}, 4), b = make_node({}, 4);
  uint32_t highest = 0;
  for (int i = 0; i < 150; ++i) {
    const Ends ends = join(*a, *b);
    highest = std::max(highest, ends.opener.index);
    a->transport().disconnect(ends.opener);
    ASSERT_TRUE(poll_until({a.get(), b.get()}, [&] {
      return a->closed.contains(ends.opener.index) && b->closed.contains(ends.acceptor.index);
    }));
    a->closed.clear();
    b->closed.clear();
  }
  EXPECT_LT(highest, 100u) << "indexes stay dense";
}

// ---- fault plans that break links ----

class Breaking : public TransportContract {
 protected:
  // Sends frames until the plan ends the link; the receiving node.
  std::unique_ptr<Node> run(const FaultPlan& plan) {
    const auto a = std::make_unique<Node>(GetParam().row->create({}).take(), 8);
    auto b = std::make_unique<Node>(make_faulty(GetParam().row->create({}).take(), plan), 8);
    ends_ = join(*a, *b);
    b->keep_receiving();
    b->receive(ends_.acceptor, 8);
    uint64_t seed = 0;
    EXPECT_TRUE(poll_until({a.get(), b.get()}, [&] {
      (void)a->try_send(ends_.opener, ++seed, 3000);
      return a->closed.contains(ends_.opener.index) && b->closed.contains(ends_.acceptor.index);
    }));
    EXPECT_EQ(a->outstanding() + b->outstanding(), 0u);
    return b;
  }
  Ends ends_;
};

INSTANTIATE_TEST_SUITE_P(All, Breaking, testing::ValuesIn(transport_variants()),
                         [](const auto& variant) { return variant.param.name(); });

TEST_P(Breaking, AFlippedBitIsNeverDelivered) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    FaultPlan plan;
    plan.seed = seed;
    plan.corrupt = 0.2;
    plan.delay = 0.2;
    const auto b = run(plan);
    EXPECT_TRUE(b->all_whole());
    const Code code = b->closed.at(ends_.acceptor.index);
    EXPECT_TRUE(code == Code::kCorrupt || code == Code::kVersion) << code_name(code);
    EXPECT_GE(b->ended_receives[code], 1u);
    EXPECT_THAT(b->transport().link_error(ends_.acceptor), testing::StartsWith("GB-"));
  }
}

TEST_P(Breaking, ADroppedLinkEndsAsPeerLost) {
  FaultPlan plan;
  plan.drop_link = 0.1;
  const auto b = run(plan);
  EXPECT_TRUE(b->all_whole());
  EXPECT_EQ(b->closed.at(ends_.acceptor.index), Code::kPeerLost);
  EXPECT_THAT(b->transport().link_error(ends_.acceptor), testing::HasSubstr("GB-P102"));
}

}  // namespace
}  // namespace gradbus
