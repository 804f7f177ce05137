// Trials of GPUs that this node does not have.
#include "worker_agent/clients/device_trials.h"

#include <gmock/gmock.h>

#include "shared_memory/attach_socket.h"

namespace gradbus {
namespace {

using testing::HasSubstr;

DeviceId gpu(uint8_t number) {
  DeviceId id{};
  id[0] = number;
  id[15] = 0xee;  // no GPU has it
  return id;
}

class DeviceTrialsTest : public testing::Test {
 protected:
  Result<DeviceTrials::Begun> begin(uint8_t number) {
    auto packet = make_packet<TryDevicePacket>(9);
    packet.device = gpu(number);
    return trials_.begin(packet, devices_);
  }

  Devices devices_{[] {}, {CudaSharing::kLegacy}};
  DeviceTrials trials_;
};

TEST_F(DeviceTrialsTest, AnswersWithNoMemoryAndKeepsTheReason) {
  const auto begun = begin(1);
  ASSERT_TRUE(begun.ok());
  EXPECT_EQ(begun.value().answer.header.request, 9u);
  EXPECT_EQ(begun.value().answer.device, gpu(1));
  EXPECT_EQ(begun.value().answer.count, 0u);
  EXPECT_THAT(begun.value().descriptors, testing::IsEmpty());
  EXPECT_THAT(trials_.wanted(gpu(1)).problem.message(), HasSubstr("GB-D62"));
  EXPECT_EQ(trials_.wanted(gpu(1)).id, gpu(1));
}

// Expect: as before other ways existed, only CUDA's IPC handles are thought to work.
TEST_F(DeviceTrialsTest, AssumesTheOldWayWithoutATrial) {
  const WantedDevice wanted = trials_.wanted(gpu(2));
  EXPECT_TRUE(wanted.problem.ok());
  EXPECT_EQ(wanted.why_not[static_cast<size_t>(CudaSharing::kLegacy) - 1], "");
  EXPECT_THAT(wanted.why_not[static_cast<size_t>(CudaSharing::kDescriptor) - 1],
              HasSubstr("not tried"));
}

TEST_F(DeviceTrialsTest, RefusesAnEndWithoutABegin) {
  auto packet = make_packet<DeviceTriedPacket>();
  packet.device = gpu(3);
  EXPECT_EQ(trials_.end(packet).code(), Code::kCorrupt);
  ASSERT_TRUE(begin(3).ok());  // without memory there is nothing to report
  EXPECT_EQ(trials_.end(packet).code(), Code::kCorrupt);
}

TEST_F(DeviceTrialsTest, RefusesMoreGpusThanAMachineHas) {
  for (uint8_t number = 0; number < 64; ++number) ASSERT_TRUE(begin(number).ok());
  EXPECT_EQ(begin(64).status().code(), Code::kCorrupt);
  EXPECT_TRUE(begin(63).ok());  // again
}

}  // namespace
}  // namespace gradbus
