// Opens memory and events of one process in another: with the double, whose memory is host memory,
// and with a GPU if there is one.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "common/fd.h"
#include "common/reduce_op.h"
#include "worker_agent/gpu/cuda_plugin.h"

namespace gradbus {
namespace {

constexpr size_t kCount = 5000;
constexpr size_t kBytes = kCount * sizeof(float);
constexpr char kMemory[] = "GRADBUS_TEST_SHARED_MEMORY";
constexpr char kEvent[] = "GRADBUS_TEST_SHARED_EVENT";
constexpr char kSharing[] = "GRADBUS_TEST_SHARED_HOW";
constexpr char kMapping[] = "GRADBUS_TEST_SHARED_BYTES";
constexpr char kDescriptor[] = "GRADBUS_TEST_SHARED_DESCRIPTOR";
constexpr char kFile[] = "GRADBUS_TEST_SHARED_BY";

std::string hexadecimal(const CudaShare& share) {
  std::string text;
  char digits[3];
  for (const uint8_t byte : share.bytes) {
    std::snprintf(digits, sizeof(digits), "%02x", byte);
    text += digits;
  }
  return text;
}

CudaShare share_of(const char* text) {
  CudaShare share;
  for (size_t i = 0; i < sizeof(share.bytes); ++i)
    share.bytes[i] = static_cast<uint8_t>(std::stoul(std::string(text + 2 * i, 2), nullptr, 16));
  return share;
}

// Runs this program again for the one test that `filter` names.
int run_other_process(const std::string& filter) {
  std::string option = "--gtest_filter=" + filter;
  std::string brief = "--gtest_brief=1";
  std::string disabled = "--gtest_also_run_disabled_tests";
  std::string program = "/proc/self/exe";
  char* words[] = {program.data(), option.data(), brief.data(), disabled.data(), nullptr};
  pid_t child = 0;
  if (posix_spawn(&child, program.c_str(), nullptr, nullptr, words, environ) != 0) return -1;
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Here a descriptor is inherited. Agents and ranks send it over their socket.
void say_to_other_process(const CudaMemoryShare& memory, const CudaShare& event) {
  setenv(kSharing, std::to_string(static_cast<uint32_t>(memory.sharing)).c_str(), 1);
  setenv(kMapping, std::to_string(memory.bytes).c_str(), 1);
  setenv(kDescriptor, std::to_string(memory.descriptor).c_str(), 1);
  setenv(kMemory, hexadecimal(memory.handle).c_str(), 1);
  setenv(kEvent, hexadecimal(event).c_str(), 1);
  if (memory.descriptor >= 0) {
    ASSERT_EQ(fcntl(memory.descriptor, F_SETFD, 0), 0);
  }
}

CudaMemoryShare said_memory() {
  return {static_cast<CudaSharing>(std::stoul(std::getenv(kSharing))),
          std::stoi(std::getenv(kDescriptor)), std::stoull(std::getenv(kMapping)),
          share_of(std::getenv(kMemory))};
}

// This process fills memory; another process adds the memory to its own.
void share_with_another(const CudaPlugin& plugin, CudaSharing sharing) {
  const CudaTable& table = *plugin.table;
  const auto must = [&](CudaResult result, const char* what) {
    ASSERT_EQ(result, CudaResult::kOk) << what << ": " << table.last_error();
  };
  CudaStream* stream = nullptr;
  CudaEvent* event = nullptr;
  void* memory = nullptr;
  must(table.create_stream(0, &stream), "stream");
  must(table.create_shared_event(0, &event), "event");
  must(table.allocate_shared(0, kBytes, sharing, &memory), "memory");
  std::vector<float> values(kCount);
  std::iota(values.begin(), values.end(), 1.0F);
  must(table.copy(stream, memory, values.data(), kBytes), "copy");
  must(table.record_event(event, stream), "record");
  CudaMemoryShare shared_memory;
  CudaShare shared_event;
  must(table.share(0, memory, &shared_memory), "share");
  must(table.share_event(event, &shared_event), "share of an event");
  EXPECT_EQ(shared_memory.sharing, sharing);
  EXPECT_EQ(shared_memory.descriptor >= 0, sharing == CudaSharing::kDescriptor);
  void* own = nullptr;
  if (sharing == CudaSharing::kLegacy) {
    EXPECT_NE(table.open(0, &shared_memory, &own), CudaResult::kOk);  // its own memory
  } else {
    EXPECT_GE(shared_memory.bytes, kBytes);
  }

  say_to_other_process(shared_memory, shared_event);
  setenv(kFile, plugin.file.c_str(), 1);
  EXPECT_EQ(run_other_process("CudaShare.DISABLED_TheOtherProcess"), 0);
  const Fd closes(shared_memory.descriptor);

  std::vector<float> got(kCount);
  must(table.copy(stream, got.data(), memory, kBytes), "copy");
  must(table.synchronize(stream), "synchronize");
  for (float& value : values) value *= 2;
  EXPECT_EQ(got, values);
  must(table.free(0, memory), "free");
  must(table.destroy_event(event), "event");
  must(table.destroy_stream(stream), "stream");
}

// Started by the tests below. It does nothing by itself.
TEST(CudaShare, DISABLED_TheOtherProcess) {
  if (std::getenv(kMemory) == nullptr) GTEST_SKIP() << "started without anything to open";
  const Result<CudaPlugin> plugin = open_cuda_plugin(std::getenv(kFile));
  ASSERT_TRUE(plugin.ok()) << plugin.status().message();
  const CudaTable& table = *plugin.value().table;
  const auto must = [&](CudaResult result, const char* what) {
    ASSERT_EQ(result, CudaResult::kOk) << what << ": " << table.last_error();
  };
  const CudaMemoryShare memory_share = said_memory();
  const CudaShare event_share = share_of(std::getenv(kEvent));
  CudaStream* stream = nullptr;
  CudaEvent* event = nullptr;
  void* memory = nullptr;
  must(table.create_stream(0, &stream), "stream");
  must(table.open(0, &memory_share, &memory), "open");
  must(table.open_event(0, &event_share, &event), "open an event");
  must(table.wait_event(stream, event), "wait");
  CudaReduce sum{.source_count = 2, .target_count = 1, .count = kCount};
  sum.sources[0] = sum.sources[1] = sum.targets[0] = memory;
  sum.dtype = static_cast<uint32_t>(DType::kF32);
  sum.op = static_cast<uint32_t>(ReduceOp::kSum);
  must(table.reduce(stream, &sum), "reduce");
  must(table.synchronize(stream), "synchronize");
  must(table.close(0, memory), "close");
  must(table.destroy_event(event), "event");
  must(table.destroy_stream(stream), "stream");
}

class CudaSharings : public testing::TestWithParam<CudaSharing> {};

TEST_P(CudaSharings, AnotherProcessAddsToItOnTheDouble) {
  setenv("GRADBUS_CUDA_DOUBLE", "processor", 1);
  const Result<CudaPlugin> plugin = open_cuda_plugin(GRADBUS_CUDA_DOUBLE_FILE);
  ASSERT_TRUE(plugin.ok()) << plugin.status().message();
  share_with_another(plugin.value(), GetParam());
}

TEST_P(CudaSharings, AnotherProcessAddsToItOnAGpu) {
  const Result<const CudaPlugin*> plugin = system_cuda_plugin();
  if (!plugin.ok()) GTEST_SKIP() << plugin.status().message();
  const auto devices = cuda_devices(*plugin.value());
  if (!devices.ok()) GTEST_SKIP() << devices.status().message();
  const CudaTable& table = *plugin.value()->table;
  void* trial = nullptr;
  if (table.allocate_shared(0, kBytes, GetParam(), &trial) == CudaResult::kInvalid)
    GTEST_SKIP() << table.last_error();  // most GPUs have no fabric handles
  table.free(0, trial);
  share_with_another(*plugin.value(), GetParam());
}

std::string name_of(const testing::TestParamInfo<CudaSharing>& one) {
  const std::string names[] = {"", "legacy", "descriptor", "fabric"};
  return names[static_cast<size_t>(one.param)];
}

INSTANTIATE_TEST_SUITE_P(All, CudaSharings,
                         testing::Values(CudaSharing::kLegacy, CudaSharing::kDescriptor,
                                         CudaSharing::kFabric),
                         name_of);

// Expect: kInvalid, a reason, and no memory.
TEST(CudaShare, WhatCannotBeSharedSoIsRefused) {
  setenv("GRADBUS_CUDA_DOUBLE", "processor", 1);
  setenv("GRADBUS_CUDA_DOUBLE_REFUSES", "legacy,fabric", 1);
  const Result<CudaPlugin> plugin = open_cuda_plugin(GRADBUS_CUDA_DOUBLE_FILE);
  ASSERT_TRUE(plugin.ok()) << plugin.status().message();
  const CudaTable& table = *plugin.value().table;
  for (const CudaSharing sharing :
       {CudaSharing::kLegacy, CudaSharing::kDescriptor, CudaSharing::kFabric}) {
    void* memory = nullptr;
    const CudaResult result = table.allocate_shared(0, kBytes, sharing, &memory);
    if (sharing == CudaSharing::kDescriptor) {
      EXPECT_EQ(result, CudaResult::kOk);
      EXPECT_EQ(table.free(0, memory), CudaResult::kOk);
    } else {
      EXPECT_EQ(result, CudaResult::kInvalid);
      EXPECT_STRNE(table.last_error(), "");
    }
  }
  unsetenv("GRADBUS_CUDA_DOUBLE_REFUSES");
}

}  // namespace
}  // namespace gradbus
