// The promises of transport/transport.h about frames on a living link, for every backend.
#include <algorithm>
#include <random>

#include "contract/transport_variants.h"

namespace gradbus {
namespace {

constexpr size_t kSizes[] = {0, 1, 63, 64, 65, 4095, 16320, 16384, 65536, 1 << 20};

std::set<uint64_t> seeds_up_to(uint64_t last) {
  std::set<uint64_t> seeds;
  for (uint64_t seed = 1; seed <= last; ++seed) seeds.insert(seed);
  return seeds;
}

TEST_P(TransportContract, TheHelloReachesTheAcceptor) {
  const auto a = make_node(), b = make_node();
  join(*a, *b, 0xfeedfacecafef00d);
  const FrameHeader& hello = b->accepted.at(0).hello;
  EXPECT_EQ(hello.kind, static_cast<uint8_t>(FrameKind::kHello));
  EXPECT_EQ(hello.total, 0xfeedfacecafef00d);
  EXPECT_EQ(hello.job, 0x1122334455667788u);
  EXPECT_EQ(hello.source, 3u);
  EXPECT_EQ(hello.epoch, 9u);
  EXPECT_EQ(hello.step, 0u);
  EXPECT_EQ(hello.chunk, 0u);
}

TEST_P(TransportContract, FramesOfEverySizeArriveWholeBothWays) {
  const auto a = make_node(), b = make_node();
  const Ends ends = join(*a, *b);
  uint64_t seed = 0;
  for (const size_t bytes : kSizes) {
    a->receive(ends.opener);
    b->receive(ends.acceptor);
    a->send(ends.opener, ++seed, bytes);
    b->send(ends.acceptor, seed, bytes);
    ASSERT_TRUE(
        poll_until({a.get(), b.get()}, [&] { return a->outstanding() + b->outstanding() == 0; }))
        << bytes << " bytes: " << a->transport().link_error(ends.opener);
    for (const Node* node : {a.get(), b.get()}) {
      ASSERT_EQ(node->arrived.size(), seed);
      EXPECT_EQ(node->arrived.back().header.length, bytes);
      EXPECT_EQ(node->arrived.back().header.step, seed);
      EXPECT_TRUE(node->arrived.back().whole) << bytes;
    }
  }
}

TEST_P(TransportContract, TheReceiverSeesTheSendersHeaderSealed) {
  const auto a = make_node(), b = make_node();
  const Ends ends = join(*a, *b);
  b->receive(ends.acceptor);
  a->send(ends.opener, 77, 1000);
  ASSERT_TRUE(poll_until({a.get(), b.get()}, [&] { return b->arrived.size() == 1; }));
  const FrameHeader& header = b->arrived[0].header;
  EXPECT_TRUE(check_frame_header(header).ok());
  EXPECT_EQ(header.job, 5u);
  EXPECT_EQ(header.dtype, static_cast<uint8_t>(DType::kU8));
  EXPECT_NE(header.payload_crc, 0u);
}

TEST_P(TransportContract, ManyFramesAreOutstandingBothWays) {
  const auto a = make_node(), b = make_node();
  const Ends ends = join(*a, *b);
  constexpr uint64_t kFrames = 200;
  a->receive(ends.opener, 16);
  b->receive(ends.acceptor, 16);
  a->keep_receiving();
  b->keep_receiving();
  for (uint64_t seed = 1; seed <= kFrames; ++seed) {
    a->send(ends.opener, seed, kSizes[seed % std::size(kSizes)] / 4);
    b->send(ends.acceptor, seed, kSizes[(seed * 3) % std::size(kSizes)] / 4);
  }
  ASSERT_TRUE(poll_until({a.get(), b.get()}, [&] {
    return a->arrived.size() == kFrames && b->arrived.size() == kFrames;
  }));
  EXPECT_EQ(a->arrived_seeds(), seeds_up_to(kFrames));
  EXPECT_EQ(b->arrived_seeds(), seeds_up_to(kFrames));
  EXPECT_TRUE(a->all_whole() && b->all_whole());
}

// Posts without polling until kBusy is not an accident of the fault plan.
size_t post_until_full(const std::function<Code()>& post) {
  size_t accepted = 0;
  for (int refused = 0; refused < 200;) {
    const Code code = post();
    EXPECT_TRUE(code == Code::kOk || code == Code::kBusy) << code_name(code);
    refused = code == Code::kOk ? 0 : refused + 1;
    accepted += code == Code::kOk;
  }
  return accepted;
}

TEST_P(TransportContract, PostsMaxIsBusyAndPollsMakeRoomAgain) {
  TransportOptions options;
  options.posts_max = 8;
  const auto a = make_node(options), b = make_node(options);
  const Ends ends = join(*a, *b);
  uint64_t seed = 0;
  EXPECT_EQ(post_until_full([&] { return a->try_send(ends.opener, seed++, 100); }), 8u);
  EXPECT_EQ(post_until_full([&] { return b->try_receive(ends.acceptor); }), 8u);
  ASSERT_TRUE(poll_until({a.get(), b.get()}, [&] { return b->arrived.size() == 8; }));
  ASSERT_TRUE(poll_until({a.get(), b.get()}, [&] { return a->outstanding() == 0; }));
  b->receive(ends.acceptor);
  a->send(ends.opener, 1000, 100);
  ASSERT_TRUE(poll_until({a.get(), b.get()}, [&] { return b->arrived.size() == 9; }));
  EXPECT_TRUE(b->all_whole());
}

TEST_P(TransportContract, AReceivePostedLateTakesWhatWaited) {
  const auto a = make_node(), b = make_node();
  const Ends ends = join(*a, *b);
  constexpr uint64_t kFrames = 48;
  for (uint64_t seed = 1; seed <= kFrames; ++seed) a->send(ends.opener, seed, 65536);
  poll_until_quiet({a.get(), b.get()});
  EXPECT_TRUE(b->arrived.empty());
  for (uint64_t got = 1; got <= kFrames; ++got) {
    b->receive(ends.acceptor);
    ASSERT_TRUE(poll_until({a.get(), b.get()}, [&] { return b->arrived.size() == got; })) << got;
  }
  EXPECT_EQ(b->arrived_seeds(), seeds_up_to(kFrames));
  EXPECT_TRUE(b->all_whole());
  EXPECT_TRUE(poll_until({a.get()}, [&] { return a->outstanding() == 0; }));
}

TEST_P(TransportContract, AStalledLinkDoesNotStallAnotherOfTheSamePair) {
  const auto a = make_node({}, 8), b = make_node({}, 8);
  const Ends stalled = join(*a, *b, 1);
  const Ends flowing = join(*a, *b, 2);
  EXPECT_NE(stalled.opener, flowing.opener);
  EXPECT_NE(stalled.acceptor, flowing.acceptor);
  for (uint64_t seed = 0; seed < 100; ++seed) a->send(stalled.opener, seed, 1 << 18);
  b->receive(flowing.acceptor, 4);
  b->keep_receiving();
  for (uint64_t seed = 0; seed < 100; ++seed) a->send(flowing.opener, seed, 1 << 12);
  ASSERT_TRUE(poll_until({a.get(), b.get()}, [&] { return b->arrived.size() == 100; }));
  for (const Node::Arrived& frame : b->arrived) EXPECT_EQ(frame.link, flowing.acceptor);
  EXPECT_TRUE(b->all_whole());
}

TEST_P(TransportContract, SmallEventSpansLoseNothing) {
  const auto a = make_node(), b = make_node();
  const Ends ends = join(*a, *b);
  b->receive(ends.acceptor, 20);
  for (uint64_t seed = 1; seed <= 20; ++seed) a->send(ends.opener, seed, 300);
  const Nanos deadline = monotonic_now() + kEventually;
  while (a->outstanding() + b->outstanding() > 0 && monotonic_now() < deadline) {
    a->poll(1);
    b->poll(1);
  }
  EXPECT_EQ(b->arrived_seeds(), seeds_up_to(20));
}

TEST_P(TransportContract, WrongSlicesAreRefused) {
  const auto a = make_node(), b = make_node();
  const Ends ends = join(*a, *b);
  std::vector<std::byte> memory(4096);
  Transport& transport = a->transport();
  const RegionId region = transport.register_memory(memory).take();
  const auto send = [&](const FrameHeader& header, Slice slice) {
    Code code = Code::kBusy;
    while (code == Code::kBusy) code = transport.post_send(ends.opener, header, slice, 1);
    return code;
  };
  EXPECT_EQ(send(data_header(1), {region, 0, 4097}), Code::kInvalid);
  EXPECT_EQ(send(data_header(1), {region, 4096, 1}), Code::kInvalid);
  EXPECT_EQ(send(data_header(1), {region, UINT64_MAX, 2}), Code::kInvalid);
  EXPECT_EQ(send(data_header(1), {RegionId{999}, 0, 1}), Code::kInvalid);
  EXPECT_EQ(send(hello_header(1), {}), Code::kInvalid);
  transport.unregister_memory(region);
  EXPECT_EQ(send(data_header(1), {region, 0, 64}), Code::kInvalid);
  Code code = Code::kBusy;
  while (code == Code::kBusy) code = transport.post_receive(ends.opener, {region, 0, 64}, 1);
  EXPECT_EQ(code, Code::kInvalid);
}

// Random posts on both sides, in random order, with random numbers of polls between. The nodes
// check that each post ends once; here: that nothing else is left or missing.
TEST_P(TransportContract, EveryPostEndsOnceUnderRandomUse) {
  for (const uint64_t run : {1, 2, 3}) {
    const auto a = make_node(), b = make_node();
    const Ends ends = join(*a, *b);
    std::mt19937_64 random(run);
    uint64_t sent = 0;
    size_t receives = 0;
    for (int step = 0; step < 600; ++step) {
      switch (random() % 4) {
        case 0: sent += a->try_send(ends.opener, sent + 1, random() % 40000) == Code::kOk; break;
        case 1: receives += b->try_receive(ends.acceptor) == Code::kOk; break;
        case 2: a->poll(1 + random() % 8); break;
        default: b->poll(1 + random() % 8);
      }
    }
    for (; receives < sent; ++receives) b->receive(ends.acceptor);
    ASSERT_TRUE(poll_until({a.get(), b.get()}, [&] {
      return b->arrived.size() == sent && a->outstanding() == 0;
    })) << run;
    EXPECT_EQ(b->arrived_seeds(), seeds_up_to(sent));
    EXPECT_TRUE(b->all_whole());
    EXPECT_EQ(b->outstanding(), receives - sent);
  }
}

}  // namespace
}  // namespace gradbus
