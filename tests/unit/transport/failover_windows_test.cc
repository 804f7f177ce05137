// What a link of several paths remembers: numbers that wrap, gaps, doubles, claims that cannot be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>

#include "transport/failover/control.h"
#include "transport/failover/paths.h"
#include "transport/failover/windows.h"

namespace gradbus {
namespace {

using testing::HasSubstr;
using Verdict = ReceiveWindow::Verdict;

struct Sender {
  explicit Sender(uint32_t posts_max) : window(posts_max), events(4096) {}

  LinkEvents link() { return LinkEvents(events, LinkId{1}); }
  uint32_t post(uint64_t token) {
    window.push(FrameHeader{}, {}, token);
    const auto frame = window.waiting();
    window.posted();
    return frame->sequence;
  }
  // Tokens of the posts that have ended since.
  std::multiset<uint64_t> ended() {
    std::multiset<uint64_t> tokens;
    for (; !events.empty(); events.pop()) tokens.insert(events.front().token);
    return tokens;
  }
  SendWindow window;
  EventQueue events;
};

TakenFrames below(uint32_t next) { return {next, {}}; }

TEST(SendWindow, AFrameEndsWhenItIsTakenAndItsBytesAreBack) {
  Sender sender(4);
  for (uint64_t token = 10; token < 13; ++token) sender.post(token);
  EXPECT_TRUE(sender.window.taken(below(2), sender.link()));
  EXPECT_TRUE(sender.ended().empty()) << "a path holds their bytes";
  for (const uint32_t sequence : {2, 1, 0}) sender.window.returned(sequence, sender.link());
  EXPECT_EQ(sender.ended(), (std::multiset<uint64_t>{10, 11}));
  EXPECT_TRUE(sender.window.taken(below(3), sender.link()));
  EXPECT_EQ(sender.ended(), (std::multiset<uint64_t>{12}));
}

TEST(SendWindow, FramesBeyondAGapEndAndMakeRoomOnlyWhenTheGapIsClosed) {
  Sender sender(4);
  for (uint64_t token = 0; token < 4; ++token)
    sender.window.returned(sender.post(token), sender.link());
  EXPECT_TRUE(sender.window.taken({0, {0b1110}}, sender.link()));
  EXPECT_EQ(sender.ended(), (std::multiset<uint64_t>{1, 2, 3}));
  EXPECT_TRUE(sender.window.full());
  EXPECT_TRUE(sender.window.taken(below(4), sender.link()));
  EXPECT_EQ(sender.ended(), (std::multiset<uint64_t>{0}));
  EXPECT_FALSE(sender.window.full());
}

TEST(SendWindow, WhatWasNotTakenIsSentAgainInOrderAfterARewind) {
  Sender sender(8);
  for (uint64_t token = 0; token < 6; ++token)
    sender.window.returned(sender.post(token), sender.link());
  sender.window.push(FrameHeader{}, {}, 6);
  EXPECT_TRUE(sender.window.taken({1, {0b1010}}, sender.link()));
  EXPECT_EQ(sender.ended(), (std::multiset<uint64_t>{0, 2, 4}));
  sender.window.rewind();
  for (const uint32_t expected : {1, 3, 5, 6}) {
    const auto frame = sender.window.waiting();
    ASSERT_TRUE(frame);
    EXPECT_EQ(frame->sequence, expected);
    EXPECT_EQ(frame->header->magic, expected);
    EXPECT_NE(frame->header->kind & kSequencedFrame, 0);
    sender.window.posted();
  }
  EXPECT_FALSE(sender.window.waiting());
}

TEST(SendWindow, ClaimsThatCannotBeAreFound) {
  Sender sender(8);
  sender.post(0);
  sender.post(1);
  EXPECT_FALSE(sender.window.taken(below(3), sender.link())) << "never posted";
  EXPECT_FALSE(sender.window.taken({0, {0b100}}, sender.link())) << "never posted, by a bit";
  EXPECT_TRUE(sender.window.taken(below(UINT32_MAX), sender.link())) << "an old word";
  sender.window.returned(0, sender.link());
  sender.window.returned(1, sender.link());
  sender.window.rewind();
  EXPECT_FALSE(sender.window.taken(below(1), sender.link())) << "not sent again yet";
  EXPECT_TRUE(sender.ended().empty());
}

TEST(ReceiveWindow, TakesEachFrameOnce) {
  ReceiveWindow window;
  EXPECT_EQ(window.take(1), Verdict::kNew);
  EXPECT_EQ(window.take(1), Verdict::kTakenBefore);
  EXPECT_EQ(window.taken().next, 0u);
  EXPECT_EQ(window.taken().beyond[0], 0b10u);
  EXPECT_EQ(window.take(0), Verdict::kNew);
  EXPECT_EQ(window.taken().next, 2u);
  EXPECT_EQ(window.take(0), Verdict::kTakenBefore);
  EXPECT_EQ(window.take(2 + kFrameWindow), Verdict::kImpossible);
  EXPECT_EQ(window.take(1 + kFrameWindow), Verdict::kNew) << "the last that may be under way";
}

// Random order within a window, every frame twice, for longer than the numbers of the bits wrap:
// the answer of the model, which remembers everything.
TEST(Windows, AgreeWithAModelThatRemembersEverything) {
  std::mt19937_64 random(7);
  ReceiveWindow window;
  std::set<uint32_t> taken;
  uint32_t next = 0;
  for (int step = 0; step < 600'000; ++step) {
    const uint32_t sequence = next + static_cast<uint32_t>(random() % 60) - std::min(next, 10u);
    const bool is_new = sequence >= next && taken.insert(sequence).second;
    while (taken.erase(next) > 0) ++next;
    ASSERT_EQ(window.take(sequence) == Verdict::kNew, is_new) << sequence;
    const TakenFrames said = window.taken();
    ASSERT_EQ(said.next, next);
    const uint32_t bit = static_cast<uint32_t>(random() % TakenFrames::kBits);
    ASSERT_EQ(said.beyond[bit / 64] >> (bit % 64) & 1, taken.count(next + bit))
        << next << " " << bit;
  }
  EXPECT_GT(next, 2 * kFrameWindow);
}

TEST(Windows, ALinkStateTravelsInAHeader) {
  const LinkState state{
      {0xfffffffe, {1, UINT64_MAX, 1ull << 63}}, Notice::kGoodbye, Code::kCorrupt};
  FrameHeader frame = pack_link_state(state);
  seal_frame(frame, {});
  ASSERT_TRUE(check_frame_header(frame).ok());
  const LinkState back = unpack_link_state(frame).value();
  EXPECT_EQ(back.taken.next, state.taken.next);
  EXPECT_EQ(back.taken.beyond, state.taken.beyond);
  EXPECT_EQ(back.notice, Notice::kGoodbye);
  EXPECT_EQ(back.code, Code::kCorrupt);
  frame.chunk = 3;
  EXPECT_THAT(unpack_link_state(frame).status().message(), HasSubstr("GB-D601"));
  frame.kind = static_cast<uint8_t>(FrameKind::kCredit);
  EXPECT_FALSE(unpack_link_state(frame).ok());
}

TEST(Paths, AHelloKeepsWhatItsCallerSaid) {
  FrameHeader hello;
  hello.kind = static_cast<uint8_t>(FrameKind::kHello);
  hello.job = 5;
  hello.source = 2;
  FrameHeader packed = pack_path_hello(hello, {0xdeadbeef, kAttemptsMax, true, true});
  const PathHello path = unpack_path_hello(packed);
  EXPECT_EQ(path.session, 0xdeadbeef);
  EXPECT_EQ(path.attempt, kAttemptsMax);
  EXPECT_TRUE(path.answered && path.control);
  EXPECT_EQ(std::memcmp(&packed, &hello, sizeof(hello)), 0);
}

TEST(Paths, AddressesAreReadBackAsTheyWereWritten) {
  const std::string text = "rdma=10.0.0.1:4000,tcp=[::1]:1,loopback=loopback/3";
  EXPECT_EQ(format_paths(parse_paths(text).value()), text);
  for (const std::string bad : {"", "tcp", "tcp=", "=1.2.3.4:5", "tcp=1.2.3.4:5,", "1.2.3.4:5"}) {
    const auto parsed = parse_paths(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_THAT(parsed.status().message(), HasSubstr("GB-F100"));
    EXPECT_THAT(parsed.status().message(), HasSubstr("'" + bad + "'"));
  }
  EXPECT_THAT(parse_paths("t=1,t=1,t=1,t=1,t=1,t=1,t=1,t=1,t=1").status().message(),
              HasSubstr("9 paths, at most 8"));
}

// Which of the peer's goes with which of ours, as "own-peer ...".
std::string paired(const std::vector<std::string>& own, const std::string& peer) {
  std::string text;
  for (const PathPair& pair : pair_paths(own, parse_paths(peer).value()))
    text += std::to_string(pair.own) + "-" + std::to_string(pair.peer) + " ";
  return text;
}

TEST(Paths, ThoseThatBothHaveAreTakenInTheOrderOfTheOpener) {
  EXPECT_EQ(paired({"tcp", "tcp"}, "tcp=a,tcp=b"), "0-0 1-1 ");
  EXPECT_EQ(paired({"rdma", "tcp"}, "tcp=a,rdma=b"), "0-1 1-0 ");
  EXPECT_EQ(paired({"tcp", "tcp"}, "tcp=a"), "0-0 ");
  EXPECT_EQ(paired({"tcp"}, "tcp=a,rdma=b,tcp=c"), "0-0 0-2 ");
  EXPECT_EQ(paired({"rdma"}, "tcp=a"), "");
}

}  // namespace
}  // namespace gradbus
