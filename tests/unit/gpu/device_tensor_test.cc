// Tests of tensors on GPUs, with the double of the plug-in with slow streams: two ranks on two
// GPUs. Rank buffers start with the contents of shared memory, which here are not zeros.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "worker_agent/gpu/device_tensor.h"

namespace gradbus {
namespace {

constexpr int kDeadlineMs = 60'000;

CudaPlugin double_of(const char* kind) {
  setenv("GRADBUS_CUDA_DOUBLE", kind, 1);
  Result<CudaPlugin> plugin = open_cuda_plugin(GRADBUS_CUDA_DOUBLE_FILE);
  EXPECT_TRUE(plugin.ok()) << plugin.status().message();
  return plugin.take();
}

struct Tensor {
  Tensor(uint64_t count, uint64_t chunk, bool leaves_node) : host(count), bell(eventfd(0, 0)) {
    for (uint64_t i = 0; i < count; ++i) host[i] = static_cast<float>(i % 1000);
    TensorSpec spec;
    spec.name = "t";
    spec.count = count;
    spec.op = ReduceOp::kAverage;
    plan.who = "tensor \"t\" of job \"test\"";
    plan.devices = {1, 0};
    plan.home = 1;
    plan.shape = make_local_reduction_shape(spec, chunk, {2, 2, leaves_node, true});
    plan.leaves_node = leaves_node;
    plan.host = reinterpret_cast<std::byte*>(host.data());
    plan.doorbell = bell.get();
  }
  // Waits for bells until this chunk is complete.
  bool wait_for(DeviceTensor& tensor, uint32_t chunk) {
    while (!tensor.summed(chunk)) {
      if (!tensor.failure().ok()) return false;
      pollfd ring{bell.get(), POLLIN, 0};
      if (poll(&ring, 1, kDeadlineMs) != 1) return false;
      uint64_t rings = 0;
      if (read(bell.get(), &rings, sizeof(rings)) != sizeof(rings)) return false;
    }
    return true;
  }

  std::vector<float> host;
  Fd bell;
  DevicePlan plan;
};

// Expect: the node's sum arrives in shared memory piece by piece, and a bell announces each piece.
// The delivered result is the input of the next round. DeviceTensor does not compute the average.
TEST(DeviceTensor, BetweenNodesSumsComeAndResultsGoThroughSharedMemory) {
  const CudaPlugin plugin = double_of("streams");
  constexpr uint64_t kCount = 2'500'000;  // 10 MB: three pieces
  Tensor made(kCount, 1000, true);
  const std::vector<float> first = made.host;
  auto tensor = DeviceTensor::make(plugin, made.plan);
  ASSERT_TRUE(tensor.ok()) << tensor.status().message();
  for (const float factor : {2.0F, 4.0F}) {
    ASSERT_TRUE(tensor.value()->start().ok());
    for (uint32_t chunk = 0; chunk < made.plan.shape.chunks; ++chunk) {
      ASSERT_TRUE(made.wait_for(*tensor.value(), chunk)) << chunk;
      const uint64_t last = std::min<uint64_t>((chunk + 1) * 1000, kCount) - 1;
      ASSERT_EQ(made.host[last], factor * first[last]) << chunk;
    }
    ASSERT_TRUE(tensor.value()->deliver().ok());
  }
}

// Opens the elements of a rank buffer as another process would.
const float* look_at(const DeviceRankBuffer& rank_buffer, uint64_t count) {
  int32_t words[2];  // of the double: process, descriptor
  std::memcpy(words, rank_buffer.memory.handle.bytes, sizeof(words));
  void* view = mmap(nullptr, count * sizeof(float), PROT_READ, MAP_SHARED, words[1], 0);
  EXPECT_NE(view, MAP_FAILED);
  return static_cast<const float*>(view);
}

// Expect: when all chunks are reported, the node's sum is in the first rank buffer. Values that
// another process writes there are divided and copied to all rank buffers. Shared memory does not
// change.
TEST(DeviceTensor, ByNcclTheFirstRankBufferLeavesTheNode) {
  const CudaPlugin plugin = double_of("streams");
  constexpr uint64_t kCount = 2'500'000;
  Tensor made(kCount, 1000, true);
  const std::vector<float> first = made.host;
  auto tensor = DeviceTensor::make(plugin, made.plan);
  ASSERT_TRUE(tensor.ok()) << tensor.status().message();
  tensor.value()->go_by_nccl({.op = ReduceOp::kSum, .divisor = 4, .postscale = 0.5});
  const float* rank_buffers[] = {look_at(tensor.value()->rank_buffer(0), kCount),
                                 look_at(tensor.value()->rank_buffer(1), kCount)};
  ASSERT_TRUE(tensor.value()->start().ok());
  for (uint32_t chunk = 0; chunk < made.plan.shape.chunks; ++chunk)
    ASSERT_TRUE(made.wait_for(*tensor.value(), chunk)) << chunk;
  for (uint64_t i = 0; i < kCount; ++i) ASSERT_EQ(rank_buffers[0][i], 2 * first[i]) << i;
  ASSERT_TRUE(tensor.value()->deliver().ok());
  tensor.value().reset();  // waits for its streams
  for (const float* rank_buffer : rank_buffers) {
    for (uint64_t i = 0; i < kCount; ++i) ASSERT_EQ(rank_buffer[i], first[i] / 4) << i;
    munmap(const_cast<float*>(rank_buffer), kCount * sizeof(float));
  }
  EXPECT_EQ(made.host, first);
}

// Expect: no bell and nothing in shared memory: the data stays on the GPUs.
TEST(DeviceTensor, OnOneNodeNothingPassesTheHost) {
  const CudaPlugin plugin = double_of("streams");
  Tensor made(5000, 1000, false);
  auto tensor = DeviceTensor::make(plugin, made.plan);
  ASSERT_TRUE(tensor.ok()) << tensor.status().message();
  const std::vector<float> before = made.host;
  ASSERT_TRUE(tensor.value()->start().ok());
  tensor.value().reset();  // waits for its streams
  EXPECT_EQ(made.host, before);
  pollfd ring{made.bell.get(), POLLIN, 0};
  EXPECT_EQ(poll(&ring, 1, 0), 0);
}

TEST(DeviceTensor, RankBuffersAreTheRanksOwn) {
  const CudaPlugin plugin = double_of("streams");
  Tensor made(100, 100, false);
  const auto tensor = DeviceTensor::make(plugin, made.plan);
  ASSERT_TRUE(tensor.ok()) << tensor.status().message();
  std::vector<DeviceShare> shares;
  for (const uint32_t rank : {0, 1}) {
    const DeviceRankBuffer& rank_buffer = tensor.value()->rank_buffer(rank);
    shares.insert(shares.end(), {rank_buffer.memory.handle, rank_buffer.ready, rank_buffer.done});
  }
  for (size_t i = 0; i < shares.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      EXPECT_NE(std::memcmp(&shares[i], &shares[j], sizeof(DeviceShare)), 0) << i << " " << j;
}

// Expect: a descriptor of the rank's own memory each time. Values that another process writes there
// are summed, and it finds the average there. Legacy and fabric handles have no descriptor.
TEST(DeviceTensor, IsSharedAsItsPlanSays) {
  const CudaPlugin plugin = double_of("streams");
  constexpr uint64_t kCount = 5000;
  for (const CudaSharing sharing :
       {CudaSharing::kLegacy, CudaSharing::kDescriptor, CudaSharing::kFabric}) {
    Tensor made(kCount, 1000, false);
    made.plan.sharing = sharing;
    auto tensor = DeviceTensor::make(plugin, made.plan);
    ASSERT_TRUE(tensor.ok()) << tensor.status().message();
    const bool has_descriptor = sharing == CudaSharing::kDescriptor;
    for (const uint32_t rank : {0, 1}) {
      EXPECT_EQ(tensor.value()->rank_buffer(rank).memory.sharing,
                static_cast<DeviceSharing>(sharing));
      const auto first = tensor.value()->share(rank);
      const auto second = tensor.value()->share(rank);
      ASSERT_TRUE(first.ok() && second.ok());
      EXPECT_EQ(first.value().descriptor.valid(), has_descriptor);
      EXPECT_EQ(first.value().descriptor.get() != second.value().descriptor.get(), has_descriptor);
    }
    if (!has_descriptor) continue;
    const auto shared = tensor.value()->share(1);
    ASSERT_TRUE(shared.ok());
    void* view = mmap(nullptr, shared.value().share.bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                      shared.value().descriptor.get(), 0);
    ASSERT_NE(view, MAP_FAILED);
    ASSERT_TRUE(tensor.value()->quiet());
    auto* const elements = static_cast<float*>(view);
    for (uint64_t i = 0; i < kCount; ++i) elements[i] += 2;
    ASSERT_TRUE(tensor.value()->start().ok());
    tensor.value().reset();  // waits for its streams
    for (uint64_t i = 0; i < kCount; ++i) ASSERT_EQ(elements[i], made.host[i] + 1) << i;
    munmap(view, shared.value().share.bytes);
  }
}

TEST(DeviceTensor, WhatIsMissingIsOneLineAndLeavesNothing) {
  const struct {
    const char* kind;
    const char* says;
  } cases[] = {
      {"full",
       "GB-D623 GPU_MEMORY: tensor \"t\" of job \"test\": memory: cudaMalloc: out of memory"},
      {"streams",
       "GB-D624 GPU_FAILED: tensor \"t\" of job \"test\": memory: the double refuses legacy"},
      {"apart",
       "GB-D624 GPU_FAILED: tensor \"t\" of job \"test\": another GPU's memory: one GPU cannot use "
       "the other's memory"},
  };
  for (const auto& one : cases) {
    const CudaPlugin plugin = double_of(one.kind);
    if (std::string(one.kind) == "streams") setenv("GRADBUS_CUDA_DOUBLE_REFUSES", "legacy", 1);
    Tensor made(100, 100, true);
    const auto tensor = DeviceTensor::make(plugin, made.plan);
    ASSERT_FALSE(tensor.ok()) << one.kind;
    EXPECT_EQ(tensor.status().message().find(one.says), 0U) << tensor.status().message();
    unsetenv("GRADBUS_CUDA_DOUBLE_REFUSES");
  }
}

}  // namespace
}  // namespace gradbus
