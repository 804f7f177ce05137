// The segments of a session: the agent's in their order, and those of a process alone.
#include "client_lib/src/arena_segments.h"

#include <fcntl.h>
#include <gmock/gmock.h>

#include "tests/unit/client_lib/fake_agent.h"

namespace gradbus {
namespace {

Packet segment_packet(uint32_t index, const Segment& segment, size_t fds = 1) {
  auto packet = make_packet<SegmentPacket>();
  packet.segment = index;
  packet.bytes = segment.bytes();
  Packet whole = test::as_packet(packet);
  for (size_t i = 0; i < fds; ++i) whole.fds.emplace_back(fcntl(segment.fd(), F_DUPFD_CLOEXEC, 0));
  return whole;
}

TEST(ArenaSegments, ComeInOrder) {
  const auto shared = Segment::create("arena", 4096).take();
  ArenaSegments arena;
  Packet second = segment_packet(1, *shared);
  EXPECT_EQ(arena.take(second).code(), Code::kCorrupt);
  Packet without = segment_packet(0, *shared, 0);
  EXPECT_EQ(arena.take(without).code(), Code::kCorrupt);
  Packet first = segment_packet(0, *shared);
  ASSERT_TRUE(arena.take(first).ok());
  ASSERT_EQ(arena.size(), 1u);
  *shared->at(100) = std::byte{7};
  EXPECT_EQ(*arena.at(0).at(100), std::byte{7});
}

TEST(ArenaSegments, AreFoundByTheirAddresses) {
  ArenaSegments arena;
  EXPECT_EQ(arena.add_own(4096).value(), 0u);
  EXPECT_EQ(arena.add_own(4096).value(), 1u);
  const std::byte* const begin = arena.at(1).at(0);
  EXPECT_EQ(arena.with(begin)->at(0), begin);
  EXPECT_EQ(arena.with(begin + 4095)->at(0), begin);
  int elsewhere = 0;
  EXPECT_EQ(arena.with(reinterpret_cast<std::byte*>(&elsewhere)), nullptr);
}

// Expect: the memory stays while somebody has it, and the next segment takes its place.
TEST(ArenaSegments, LeaveTheirPlaces) {
  ArenaSegments arena;
  ASSERT_TRUE(arena.add_own(4096).ok());
  ASSERT_TRUE(arena.add_own(4096).ok());
  const std::shared_ptr<Segment> kept = arena.with(arena.at(0).at(0));
  arena.remove(kept);
  EXPECT_EQ(arena.with(kept->at(0)), nullptr);
  *kept->at(0) = std::byte{1};
  EXPECT_EQ(arena.add_own(4096).value(), 0u);
  EXPECT_NE(arena.at(0).at(0), kept->at(0));
  EXPECT_EQ(arena.size(), 2u);
}

}  // namespace
}  // namespace gradbus
