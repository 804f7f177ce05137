// What the doctor says of GPUs, against doubles of the plug-in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "cli/doctor/doctor_findings.h"
#include "worker_agent/gpu/cuda_plugin.h"

namespace gradbus {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr uint64_t kMebibyte = 1U << 20U;

CudaPlugin open_double(const char* kind) {
  setenv("GRADBUS_CUDA_DOUBLE", kind, 1);
  const Result<CudaPlugin> plugin = open_cuda_plugin(GRADBUS_CUDA_DOUBLE_FILE);
  EXPECT_TRUE(plugin.ok()) << plugin.status().message();
  return plugin.ok() ? plugin.value() : CudaPlugin{};
}

std::vector<Finding> findings_of(const char* kind) {
  const CudaPlugin plugin = open_double(kind);
  return cuda_findings(&plugin);
}

void expect_not_tried(const std::vector<Finding>& findings, const char* why) {
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].name, "cuda");
  EXPECT_THAT(findings[0].value, HasSubstr(why));
  EXPECT_EQ(findings[1].name, "cuda pinning");
  EXPECT_EQ(findings[1].level, Level::kMissing);
  EXPECT_THAT(findings[1].value, StartsWith("not tried: "));
  EXPECT_THAT(findings[1].next, StartsWith("nothing: "));
}

TEST(DoctorCuda, WithoutAGpuNothingIsPinned) {
  expect_not_tried(cuda_findings(open_cuda_plugin("/nowhere/a.so").status()), "GB-D620");
  expect_not_tried(findings_of("no_driver"), "GB-D622");
  expect_not_tried(findings_of("no_device"), "GB-D622");
}

TEST(DoctorCuda, SaysThatMemoryCanBePinned) {
  const std::vector<Finding> findings = findings_of("processor");
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].level, Level::kOk);
  EXPECT_EQ(findings[1].level, Level::kOk);
  EXPECT_EQ(findings[1].value, "16 MiB of shared memory can be registered: copies do not wait");
  EXPECT_EQ(findings[1].next, "");
}

TEST(DoctorCuda, SaysWhyMemoryCannotBePinned) {
  const std::vector<Finding> findings = findings_of("cannot_pin");
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].level, Level::kOk);
  EXPECT_EQ(findings[1].level, Level::kWarn);
  EXPECT_EQ(findings[1].value,
            "GB-D623 GPU_MEMORY: 16 MiB of shared memory: cudaHostRegister: out of memory");
  EXPECT_THAT(findings[1].next, AllOf(HasSubstr("slow"), HasSubstr("ulimit -l unlimited")));
}

// What is pinned is memory that can be written, as large as it is said to be, and let go of again.
int pins = 0;
int unpins = 0;
CudaResult written_pin(void* memory, uint64_t bytes) {
  EXPECT_EQ(bytes, 16 * kMebibyte);
  std::memset(memory, 1, bytes);
  ++pins;
  return CudaResult::kOk;
}
CudaResult written_unpin(void* memory) {
  EXPECT_EQ(static_cast<char*>(memory)[16 * kMebibyte - 1], 1);
  ++unpins;
  return CudaResult::kOk;
}

TEST(DoctorCuda, LeavesNothingPinned) {
  CudaPlugin plugin = open_double("processor");
  CudaTable table = *plugin.table;
  table.pin = written_pin;
  table.unpin = written_unpin;
  plugin.table = &table;
  cuda_findings(&plugin);
  EXPECT_EQ(pins, 1);
  EXPECT_EQ(unpins, 1);
}

// From a /proc and a /sys of the test's own: without RDMA nobody could use it.
TEST(DoctorGpu, SaysWhetherCardsReachGpusMemory) {
  const std::filesystem::path root =
      std::filesystem::temp_directory_path() / ("doctor_gpu_" + std::to_string(::getpid()));
  const auto found = [&] {
    return gpu_findings((root / "gpus").string(), (root / "ib").string(), (root / "mod").string());
  };
  ASSERT_EQ(found().size(), 1U);
  EXPECT_EQ(found()[0].level, Level::kMissing);
  std::filesystem::create_directories(root / "gpus/0000:01:00.0");
  ASSERT_EQ(found().size(), 1U);
  EXPECT_EQ(found()[0].value, "1 NVIDIA");
  std::filesystem::create_directories(root / "ib/mlx5_0");
  ASSERT_EQ(found().size(), 2U);
  EXPECT_EQ(found()[1].name, "gpudirect");
  EXPECT_EQ(found()[1].level, Level::kMissing);
  EXPECT_THAT(found()[1].next, HasSubstr("modprobe nvidia_peermem"));
  std::filesystem::create_directories(root / "mod/nvidia_peermem/parameters");
  ASSERT_EQ(found().size(), 2U);
  EXPECT_EQ(found()[1].level, Level::kOk);
  EXPECT_EQ(found()[1].next, "");
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace gradbus
