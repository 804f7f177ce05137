// No allocation on the steady path: this program counts every operator new.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "common/clock.h"
#include "tests/count_allocations.h"
#include "transport/registry.h"

namespace gradbus {
namespace {

struct End {
  explicit End(std::string_view names)
      : transport(open_transports(names, {}).take()), memory(1 << 20) {
    region = transport->register_memory(memory).take();
  }
  // Events of one poll: sends and receives ended.
  void poll() {
    std::array<TransportEvent, 32> events;
    for (size_t i = 0, count = transport->poll(events); i < count; ++i) {
      if (events[i].kind == TransportEvent::Kind::kAccepted ||
          events[i].kind == TransportEvent::Kind::kConnected) {
        link = events[i].link;
        up = true;
      }
      received += events[i].kind == TransportEvent::Kind::kReceived;
    }
  }

  std::unique_ptr<Transport> transport;
  std::vector<std::byte> memory;
  RegionId region;
  LinkId link;
  bool up = false;
  size_t received = 0;
};

void operation(End& a, End& b, size_t frames, size_t bytes) {
  FrameHeader header;
  header.kind = static_cast<uint8_t>(FrameKind::kCredit);
  const size_t target = b.received + frames;
  const Nanos deadline = monotonic_now() + 60 * kSecond;
  for (size_t i = 0; i < frames; ++i) {
    ASSERT_EQ(b.transport->post_receive(b.link, {b.region, 0, 100'000}, i), Code::kOk);
    ASSERT_EQ(a.transport->post_send(a.link, header, {a.region, 0, bytes}, i), Code::kOk);
    while (b.received < target - frames + i + 1 && monotonic_now() < deadline) {
      a.poll();
      b.poll();
    }
  }
  ASSERT_EQ(b.received, target);
}

TEST(TransportAllocation, ASteadyLinkAllocatesNothing) {
  std::vector<std::string> all = {"tcp,tcp", "loopback,loopback"};
  for (const TransportRow& row : all_transports())
    if (row.available().ok()) all.emplace_back(row.name);
  for (const std::string& names : all) {
    End a(names), b(names);
    FrameHeader hello;
    hello.kind = static_cast<uint8_t>(FrameKind::kHello);
    ASSERT_TRUE(a.transport->connect(b.transport->local_address(), hello).ok());
    const Nanos deadline = monotonic_now() + 60 * kSecond;
    while (!(a.up && b.up) && monotonic_now() < deadline) {
      a.poll();
      b.poll();
    }
    operation(a, b, 10, 50'000);
    const size_t before = test::allocations();
    operation(a, b, 1000, 50'000);
    operation(a, b, 1000, 64);
    EXPECT_EQ(test::allocations(), before) << names;
  }
}

}  // namespace
}  // namespace gradbus
