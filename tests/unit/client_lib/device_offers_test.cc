// Offers of GPU memory: what of the agent's packet is taken, and what the agent is told.
#include "client_lib/src/device_offers.h"

#include <gmock/gmock.h>
#include <sys/eventfd.h>

#include "tests/unit/client_lib/fake_agent.h"

namespace gradbus {
namespace {

using test::as_packet;
using test::FakeAgent;
using testing::SizeIs;

class DeviceOffersTest : public testing::Test {
 protected:
  DeviceOffersTest() { socket_.open(agent_.connection()); }
  // With memory in both of the ways that need no fabric.
  static Packet offer_of_two(uint32_t request, size_t fds) {
    auto packet = make_packet<DeviceTrialPacket>(request);
    packet.count = 2;
    packet.memory[0].sharing = DeviceSharing::kLegacy;
    packet.memory[1].sharing = DeviceSharing::kDescriptor;
    packet.memory[1].bytes = 4096;
    Packet whole = as_packet(packet);
    for (size_t i = 0; i < fds; ++i) whole.fds.emplace_back(eventfd(0, EFD_CLOEXEC));
    return whole;
  }

  FakeAgent agent_;
  AgentSocket socket_{kSecond};
  DeviceOffers offers_{socket_};
  const DeviceId gpu_{1, 2, 3};
};

TEST_F(DeviceOffersTest, TakeTheMemoryAndItsDescriptor) {
  const auto asked = offers_.ask(gpu_);
  ASSERT_TRUE(asked.ok());
  const auto wish = agent_.read<TryDevicePacket>();
  ASSERT_TRUE(wish);
  EXPECT_EQ(wish->device, gpu_);
  EXPECT_FALSE(asked.value()->done.load());
  Packet packet = offer_of_two(wish->header.request, 1);
  ASSERT_TRUE(offers_.take(packet).ok());
  EXPECT_TRUE(asked.value()->done.load());
  ASSERT_THAT(asked.value()->memory, SizeIs(2));
  EXPECT_FALSE(asked.value()->memory[0].descriptor.valid());
  EXPECT_TRUE(asked.value()->memory[1].descriptor.valid());
  ASSERT_TRUE(offers_.report(gpu_, *asked.value(), {"", "no driver"}).ok());
  const auto told = agent_.read<DeviceTriedPacket>();
  ASSERT_TRUE(told);
  EXPECT_EQ(get_text(told->why_not[static_cast<size_t>(DeviceSharing::kLegacy) - 1]), "");
  EXPECT_EQ(get_text(told->why_not[static_cast<size_t>(DeviceSharing::kDescriptor) - 1]),
            "no driver");
}

TEST_F(DeviceOffersTest, RefuseWhatNoAgentSends) {
  for (const size_t fds : {0, 2}) {
    ASSERT_TRUE(offers_.ask(gpu_).ok());
    Packet packet = offer_of_two(agent_.read<TryDevicePacket>()->header.request, fds);
    EXPECT_EQ(offers_.take(packet).code(), Code::kCorrupt);
  }
  ASSERT_TRUE(offers_.ask(gpu_).ok());
  auto many = make_packet<DeviceTrialPacket>(agent_.read<TryDevicePacket>()->header.request);
  many.count = kDeviceSharings + 1;
  Packet packet = as_packet(many);
  EXPECT_EQ(offers_.take(packet).code(), Code::kCorrupt);
}

TEST_F(DeviceOffersTest, IgnoreAnOfferThatNobodyAskedFor) {
  Packet packet = offer_of_two(77, 1);
  EXPECT_TRUE(offers_.take(packet).ok());
}

TEST(DeviceOffersAlone, AreEmptyAtOnce) {
  AgentSocket socket(kSecond);
  DeviceOffers offers(socket);
  const auto offer = offers.ask({});
  ASSERT_TRUE(offer.ok());
  EXPECT_TRUE(offer.value()->done.load());
  EXPECT_THAT(offer.value()->memory, SizeIs(0));
  EXPECT_TRUE(offers.report({}, *offer.value(), {}).ok());
}

}  // namespace
}  // namespace gradbus
