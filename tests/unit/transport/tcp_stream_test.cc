// What a TCP link makes of the bytes of one stream, cut and changed in every way.
#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "unit/transport/raw_peer.h"

namespace gradbus {
namespace {

constexpr Nanos kAtOnce = 10 * kSecond;

struct RawLink {
  // So long a timeout that no deadline helps out: the grace of an ending link is half of it.
  explicit RawLink(uint32_t peer_timeout_ms = 30'000)
      : node(tcp_node(peer_timeout_ms)), peer(*node) {
    peer.greet(*node);
    if (!node->accepted.empty()) link = node->accepted[0].link;
  }
  std::string error() const { return node->transport().link_error(link); }
  bool closed() const { return node->closed.contains(link.index); }

  std::unique_ptr<Node> node;
  RawPeer peer;
  LinkId link;
};

TEST(TcpStream, AFrameCutIntoSingleBytesArrivesWhole) {
  RawLink raw;
  raw.node->receive(raw.link, 2);
  std::vector<std::byte> bytes = sealed_frame(1, 200);
  const std::vector<std::byte> second = sealed_frame(2, 0);
  bytes.insert(bytes.end(), second.begin(), second.end());
  for (const std::byte& one : bytes) {
    raw.peer.send(std::span(&one, 1));
    raw.node->poll();
  }
  ASSERT_TRUE(poll_until({raw.node.get()}, [&] { return raw.node->arrived.size() == 2; }));
  EXPECT_TRUE(raw.node->all_whole());
  EXPECT_EQ(raw.node->arrived[0].header.length, 200u);
}

// Frames of many sizes as one run of bytes, cut at a step that shares no factor with them.
TEST(TcpStream, AnyCutBetweenFramesIsTheSame) {
  for (const size_t step : {1021, 4099, 16411, 100003}) {
    RawLink raw;
    raw.node->keep_receiving();
    raw.node->receive(raw.link, 8);
    std::vector<std::byte> bytes;
    uint64_t frames = 0;
    for (const size_t size : {0, 1, 64, 5000, 0, 0, 16384, 3, 40000, 64, 4096, 20000, 0}) {
      const std::vector<std::byte> frame = sealed_frame(++frames, size);
      bytes.insert(bytes.end(), frame.begin(), frame.end());
    }
    for (size_t at = 0; at < bytes.size(); at += step) {
      raw.peer.send(std::span(bytes).subspan(at, std::min(step, bytes.size() - at)));
      poll_until_quiet({raw.node.get()});
    }
    ASSERT_TRUE(poll_until({raw.node.get()}, [&] { return raw.node->arrived.size() == frames; }))
        << step << raw.error();
    EXPECT_EQ(raw.node->arrived_seeds().size(), frames);
    EXPECT_TRUE(raw.node->all_whole());
  }
}

TEST(TcpStream, AFlippedPayloadBitEndsTheLinkAndNamesThePeer) {
  RawLink raw;
  raw.node->receive(raw.link, 3);
  std::vector<std::byte> frame = sealed_frame(1, 70000);
  frame[60000] ^= std::byte{4};
  raw.peer.send(frame);
  ASSERT_TRUE(poll_until({raw.node.get()}, [&] { return raw.closed(); }));
  EXPECT_TRUE(raw.node->arrived.empty());
  EXPECT_EQ(raw.node->closed.at(raw.link.index), Code::kCorrupt);
  EXPECT_EQ(raw.node->ended_receives[Code::kCorrupt], 3u);
  EXPECT_THAT(raw.error(), testing::HasSubstr("GB-D612"));
  EXPECT_THAT(raw.error(), testing::HasSubstr("payload_crc"));
  EXPECT_THAT(raw.error(), testing::HasSubstr(raw.peer.local_address()));
  EXPECT_TRUE(poll_until({raw.node.get()}, [&] { return raw.peer.is_closed(); }));
}

TEST(TcpStream, EveryFlippedHeaderByteEndsTheLink) {
  for (size_t byte = 0; byte < sizeof(FrameHeader); ++byte) {
    RawLink raw;
    raw.node->receive(raw.link);
    std::vector<std::byte> frame = sealed_frame(1, 10);
    frame[byte] ^= std::byte{0x10};
    raw.peer.send(frame);
    ASSERT_TRUE(poll_until({raw.node.get()}, [&] { return raw.closed(); })) << byte;
    EXPECT_TRUE(raw.node->arrived.empty());
    EXPECT_EQ(raw.node->closed.at(raw.link.index), byte == 4 ? Code::kVersion : Code::kCorrupt);
  }
}

TEST(TcpStream, ASecondHelloEndsTheLink) {
  RawLink raw;
  raw.peer.send(pack_greeting(greeting_of(5, 0, 1)));
  ASSERT_TRUE(poll_until({raw.node.get()}, [&] { return raw.closed(); }));
  EXPECT_EQ(raw.node->closed.at(raw.link.index), Code::kCorrupt);
  EXPECT_THAT(raw.error(), testing::HasSubstr("kind"));
}

TEST(TcpStream, AnEndInsideAFrameIsALostPeer) {
  RawLink raw;
  raw.node->receive(raw.link);
  const std::vector<std::byte> frame = sealed_frame(1, 1000);
  {
    RawPeer leaving(std::move(raw.peer));
    leaving.send(std::span(frame).first(500));
    poll_until_quiet({raw.node.get()});
  }
  ASSERT_TRUE(poll_until(
      {raw.node.get()}, [&] { return raw.closed(); }, kAtOnce));
  EXPECT_EQ(raw.node->closed.at(raw.link.index), Code::kPeerLost);
  EXPECT_EQ(raw.node->ended_receives[Code::kPeerLost], 1u);
  EXPECT_THAT(raw.error(), testing::HasSubstr("middle of a frame"));
}

// The deadlines of the end pass while this side is not scheduled; what has come is still read.
TEST(TcpStream, APauseOfOurOwnLosesNothingThatHasArrived) {
  constexpr uint64_t kFrames = 60;
  RawLink raw(1500);
  raw.node->receive(raw.link, kFrames);
  std::vector<std::byte> bytes;
  for (uint64_t seed = 1; seed <= kFrames; ++seed) {
    const std::vector<std::byte> frame = sealed_frame(seed, 100);
    bytes.insert(bytes.end(), frame.begin(), frame.end());
  }
  RawPeer(std::move(raw.peer)).send(bytes);  // and closes
  ASSERT_TRUE(poll_until({}, [&] { return raw.node->poll(1) > 0; }));
  ASSERT_LT(raw.node->arrived.size(), kFrames) << "nothing is left to lose";
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  ASSERT_TRUE(poll_until({}, [&] { return raw.node->poll(1) > 0 && raw.closed(); }));
  EXPECT_EQ(raw.node->arrived.size(), kFrames);
  EXPECT_EQ(raw.node->closed.at(raw.link.index), Code::kClosed);
}

TEST(TcpStream, AnEndBetweenFramesIsAClosedLink) {
  RawLink raw;
  raw.node->receive(raw.link, 2);
  {
    RawPeer leaving(std::move(raw.peer));
    leaving.send(sealed_frame(1, 1000));
  }
  ASSERT_TRUE(poll_until(
      {raw.node.get()}, [&] { return raw.closed(); }, kAtOnce));
  EXPECT_EQ(raw.node->arrived.size(), 1u);
  EXPECT_EQ(raw.node->closed.at(raw.link.index), Code::kClosed);
  EXPECT_EQ(raw.node->ended_receives[Code::kClosed], 1u);
}

}  // namespace
}  // namespace gradbus
