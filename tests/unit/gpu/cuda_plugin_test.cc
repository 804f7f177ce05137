// Tests loading the CUDA plug-in, with everything that can be missing, on doubles of the plug-in.
#include "worker_agent/gpu/cuda_plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace gradbus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<CudaPlugin> open_double(const char* kind) {
  setenv("GRADBUS_CUDA_DOUBLE", kind, 1);
  return open_cuda_plugin(GRADBUS_CUDA_DOUBLE_FILE);
}

void expect_refusal(const Result<CudaPlugin>& plugin, Code code, const char* words) {
  ASSERT_FALSE(plugin.ok());
  EXPECT_EQ(plugin.status().code(), code);
  EXPECT_THAT(plugin.status().message(), HasSubstr(words));
  EXPECT_EQ(plugin.status().message().find('\n'), std::string::npos);
}

TEST(CudaPlugin, WhatIsMissingIsOneLine) {
  expect_refusal(open_cuda_plugin("/nowhere/a.so"), Code::kUnavailable, "GB-D620 NO_CUDA_PLUGIN: ");
  expect_refusal(open_cuda_plugin("libm.so.6"), Code::kUnavailable, "lacks gradbus_cuda_table");
  expect_refusal(open_double("other_version"), Code::kVersion,
                 ("is of version 77, this program needs " + std::to_string(kCudaAbi)).c_str());
  expect_refusal(open_double("hole"), Code::kVersion, "GB-D621 CUDA_PLUGIN_VERSION: ");
}

TEST(CudaPlugin, TellsItsDevices) {
  const Result<CudaPlugin> plugin = open_double("two_devices");
  ASSERT_TRUE(plugin.ok()) << plugin.status().message();
  const auto devices = cuda_devices(plugin.value());
  ASSERT_TRUE(devices.ok()) << devices.status().message();
  ASSERT_EQ(devices.value().size(), 2U);
  EXPECT_STREQ(devices.value()[1].name, "a double");
  EXPECT_EQ(devices.value()[1].minor, 1U);
}

TEST(CudaPlugin, NoDriverAndNoDeviceAreTwoThings) {
  const Result<CudaPlugin> no_driver = open_double("no_driver");
  ASSERT_TRUE(no_driver.ok());
  const Status driver = cuda_devices(no_driver.value()).status();
  EXPECT_THAT(driver.message(), HasSubstr("GB-D622 NO_GPU: GPUs: no NVIDIA driver (libcuda.so.1)"));
  const Result<CudaPlugin> no_device = open_double("no_device");
  ASSERT_TRUE(no_device.ok());
  const Status device = cuda_devices(no_device.value()).status();
  EXPECT_THAT(device.message(), HasSubstr("GB-D622 NO_GPU: the NVIDIA driver has no GPU"));
  EXPECT_EQ(device.code(), Code::kUnavailable);
}

TEST(CudaPlugin, OutOfMemorySaysWhatWasWanted) {
  const Result<CudaPlugin> plugin = open_double("two_devices");
  ASSERT_TRUE(plugin.ok());
  void* memory = nullptr;
  const CudaResult result = plugin.value().table->allocate(0, 1 << 21, &memory);
  const Status status = cuda_status(plugin.value(), result, "job digits: 2 MiB on GPU 0");
  EXPECT_EQ(status.code(), Code::kExhausted);
  EXPECT_THAT(status.message(),
              HasSubstr("GB-D623 GPU_MEMORY: job digits: 2 MiB on GPU 0: cudaMalloc: out of "));
  const Status failed = cuda_status(plugin.value(), CudaResult::kFailed, "encode");
  EXPECT_THAT(failed.message(), HasSubstr("GB-D624 GPU_FAILED: encode: "));
  EXPECT_TRUE(cuda_status(plugin.value(), CudaResult::kOk, "").ok());
}

TEST(CudaPlugin, IsLookedForBesideTheProgram) {
  unsetenv("GRADBUS_CUDA_PLUGIN");
  const auto places = cuda_plugin_places("/opt/gradbus/bin");
  ASSERT_FALSE(places.empty());
  EXPECT_EQ(places.front(), "/opt/gradbus/lib/libgradbus_cuda.so");
  setenv("GRADBUS_CUDA_PLUGIN", "/a/file.so", 1);
  EXPECT_THAT(cuda_plugin_places("/opt/gradbus/bin"), ElementsAre("/a/file.so"));
  unsetenv("GRADBUS_CUDA_PLUGIN");
}

}  // namespace
}  // namespace gradbus
