// The attach socket: whole packets with descriptors, and everything that is not one.
#include "shared_memory/attach_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace gradbus {
namespace {

struct Pair {
  Pair() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    left.reset(fds[0]);
    right.reset(fds[1]);
  }
  ReceivePacket receive() { return receive_packet(right.get(), packet, why); }
  Fd left, right;
  Packet packet;
  Status why;
};

TEST(AttachSocket, APacketArrivesWholeWithItsDescriptors) {
  Pair pair;
  EXPECT_EQ(pair.receive(), ReceivePacket::kNothing);
  auto sent = make_packet<SegmentPacket>(7);
  sent.segment = 3;
  sent.bytes = 4096;
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  ASSERT_EQ(send_packet(pair.left.get(), &sent, sizeof(sent), {pipe_fds[1]}), Code::kOk);
  ASSERT_EQ(pair.receive(), ReceivePacket::kPacket) << pair.why.message();
  const auto got = pair.packet.as<SegmentPacket>();
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got.value().header.request, 7u);
  EXPECT_EQ(got.value().segment, 3u);
  ASSERT_EQ(pair.packet.fds.size(), 1u);
  EXPECT_EQ(write(pair.packet.fds[0].get(), "x", 1), 1) << "the descriptor works";
  EXPECT_FALSE(pair.packet.as<JoinPacket>().ok()) << "another type";
  close(pipe_fds[0]);
  close(pipe_fds[1]);
}

TEST(AttachSocket, TheEndAndAFullSocketAreSaid) {
  Pair pair;
  const auto packet = make_packet<LeavePacket>();
  Code code = Code::kOk;
  for (int i = 0; i < 100'000 && code == Code::kOk; ++i)
    code = send_packet(pair.left.get(), &packet, sizeof(packet));
  EXPECT_EQ(code, Code::kBusy);
  pair.right.reset();
  EXPECT_EQ(send_packet(pair.left.get(), &packet, sizeof(packet)), Code::kClosed);
  Pair other;
  other.left.reset();
  EXPECT_EQ(other.receive(), ReceivePacket::kEnd);
}

struct BadCase {
  const char* what;
  const char* id;
  void (*spoil)(JoinPacket&);
};

TEST(AttachSocket, EveryBadHeaderIsNamed) {
  const BadCase cases[] = {
      {"magic", "GB-S211", [](JoinPacket& p) { p.header.magic ^= 1; }},
      {"version", "GB-V801", [](JoinPacket& p) { p.header.version = 99; }},
      {"bytes", "GB-S211", [](JoinPacket& p) { p.header.bytes += 1; }},
  };
  for (const BadCase& bad : cases) {
    Pair pair;
    auto packet = make_packet<JoinPacket>();
    bad.spoil(packet);
    ASSERT_EQ(send_packet(pair.left.get(), &packet, sizeof(packet)), Code::kOk);
    EXPECT_EQ(pair.receive(), ReceivePacket::kBad) << bad.what;
    EXPECT_NE(pair.why.message().find(bad.id), std::string::npos) << pair.why.message();
  }
  Pair pair;
  ASSERT_EQ(send_packet(pair.left.get(), "short", 5), Code::kOk);
  EXPECT_EQ(pair.receive(), ReceivePacket::kBad);
  const std::vector<char> long_packet(kAttachPacketBytesMax + 1);
  ASSERT_EQ(send_packet(pair.left.get(), long_packet.data(), long_packet.size()), Code::kOk);
  EXPECT_EQ(pair.receive(), ReceivePacket::kBad);
}

TEST(AttachSocket, TextIsNotCutInsideACharacter) {
  char field[8];
  set_text(field, "abcdef\u00e9");  // two bytes, of which one would fit
  EXPECT_EQ(get_text(field), "abcdef");
  set_text(field, "abcde\u00e9");
  EXPECT_EQ(get_text(field), "abcde\u00e9");
  set_text(field, "abcd\U0001f600");
  EXPECT_EQ(get_text(field), "abcd");
  set_text(field, std::string(20, '\x80'));  // no character at all: refused by its reader
  EXPECT_EQ(get_text(field), "");
}

TEST(AttachSocket, TextWithoutATerminatorStaysInside) {
  auto packet = make_packet<JoinPacket>();
  std::memset(packet.job, 'x', sizeof(packet.job));
  EXPECT_EQ(get_text(packet.job).size(), sizeof(packet.job));
  set_text(packet.job, std::string(500, 'y'));
  EXPECT_EQ(get_text(packet.job).size(), sizeof(packet.job) - 1);
}

}  // namespace
}  // namespace gradbus
