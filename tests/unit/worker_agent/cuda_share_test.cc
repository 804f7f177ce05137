// Memory and events of one process in another: over the double, whose memory is the host's, and
// over a GPU where there is one.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "common/reduce_op.h"
#include "worker_agent/device/cuda_plugin.h"

namespace gradbus {
namespace {

constexpr size_t kCount = 5000;
constexpr size_t kBytes = kCount * sizeof(float);
constexpr char kMemory[] = "GRADBUS_TEST_SHARED_MEMORY";
constexpr char kEvent[] = "GRADBUS_TEST_SHARED_EVENT";
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

// Runs this program once more, for the one test that `filter` names.
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

// This process fills memory, another one adds the memory to itself.
void share_with_another(const CudaPlugin& plugin) {
  const CudaTable& table = *plugin.table;
  const auto must = [&](CudaResult result, const char* what) {
    ASSERT_EQ(result, CudaResult::kOk) << what << ": " << table.last_error();
  };
  CudaStream* stream = nullptr;
  CudaEvent* event = nullptr;
  void* memory = nullptr;
  must(table.create_stream(0, &stream), "stream");
  must(table.create_shared_event(0, &event), "event");
  must(table.allocate(0, kBytes, &memory), "memory");
  std::vector<float> values(kCount);
  std::iota(values.begin(), values.end(), 1.0F);
  must(table.copy(stream, memory, values.data(), kBytes), "copy");
  must(table.record_event(event, stream), "record");
  CudaShare shared_memory;
  CudaShare shared_event;
  must(table.share(0, memory, &shared_memory), "share");
  must(table.share_event(event, &shared_event), "share of an event");
  void* own = nullptr;
  EXPECT_NE(table.open(0, &shared_memory, &own), CudaResult::kOk);  // what is its own

  setenv(kMemory, hexadecimal(shared_memory).c_str(), 1);
  setenv(kEvent, hexadecimal(shared_event).c_str(), 1);
  setenv(kFile, plugin.file.c_str(), 1);
  EXPECT_EQ(run_other_process("CudaShare.DISABLED_TheOtherProcess"), 0);

  std::vector<float> got(kCount);
  must(table.copy(stream, got.data(), memory, kBytes), "copy");
  must(table.synchronize(stream), "synchronize");
  for (float& value : values) value *= 2;
  EXPECT_EQ(got, values);
  must(table.free(0, memory), "free");
  must(table.destroy_event(event), "event");
  must(table.destroy_stream(stream), "stream");
}

// Started by the tests below; alone it does nothing.
TEST(CudaShare, DISABLED_TheOtherProcess) {
  if (std::getenv(kMemory) == nullptr) GTEST_SKIP() << "started without anything to open";
  const Result<CudaPlugin> plugin = open_cuda_plugin(std::getenv(kFile));
  ASSERT_TRUE(plugin.ok()) << plugin.status().message();
  const CudaTable& table = *plugin.value().table;
  const auto must = [&](CudaResult result, const char* what) {
    ASSERT_EQ(result, CudaResult::kOk) << what << ": " << table.last_error();
  };
  const CudaShare memory_share = share_of(std::getenv(kMemory));
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

TEST(CudaShare, AnotherProcessAddsToItOnTheDouble) {
  setenv("GRADBUS_CUDA_DOUBLE", "processor", 1);
  const Result<CudaPlugin> plugin = open_cuda_plugin(GRADBUS_CUDA_DOUBLE_FILE);
  ASSERT_TRUE(plugin.ok()) << plugin.status().message();
  share_with_another(plugin.value());
}

TEST(CudaShare, AnotherProcessAddsToItOnAGpu) {
  const Result<const CudaPlugin*> plugin = system_cuda_plugin();
  if (!plugin.ok()) GTEST_SKIP() << plugin.status().message();
  const auto devices = cuda_devices(*plugin.value());
  if (!devices.ok()) GTEST_SKIP() << devices.status().message();
  share_with_another(*plugin.value());
}

}  // namespace
}  // namespace gradbus
