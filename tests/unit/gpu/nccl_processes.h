// Fixture of tests with NCCL processes: doubles of libnccl and of the CUDA plug-in, which the
// processes find in their environment. The plug-in's memory is host memory and can be shared.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "worker_agent/gpu/cuda_plugin.h"

namespace gradbus::test {

class NcclProcesses : public testing::Test {
 protected:
  void SetUp() override {
    setenv("GRADBUS_CUDA_PLUGIN", GRADBUS_CUDA_DOUBLE_FILE, 1);
    setenv("GRADBUS_CUDA_DOUBLE", "processor", 1);
    setenv("GRADBUS_NCCL", GRADBUS_NCCL_DOUBLE_FILE, 1);
    unsetenv("GRADBUS_NCCL_DOUBLE");
  }
  void TearDown() override {
    for (float* rank_buffer : rank_buffers_) table().free(0, rank_buffer);
    unsetenv("GRADBUS_CUDA_PLUGIN");
    unsetenv("GRADBUS_NCCL");
    unsetenv("GRADBUS_NCCL_DOUBLE");
  }

  // Makes the next one of rank_buffers_, and returns how another process opens it.
  CudaMemoryShare share_new_rank_buffer(size_t bytes, CudaSharing sharing = CudaSharing::kLegacy) {
    void* memory = nullptr;
    CudaMemoryShare share = {};
    EXPECT_EQ(table().allocate_shared(0, bytes, sharing, &memory), CudaResult::kOk);
    rank_buffers_.push_back(static_cast<float*>(memory));
    EXPECT_EQ(table().share(0, memory, &share), CudaResult::kOk);
    return share;
  }

  std::vector<float*> rank_buffers_;

 private:
  static const CudaTable& table() {
    static const Result<CudaPlugin> plugin = open_cuda_plugin(GRADBUS_CUDA_DOUBLE_FILE);
    return *plugin.value().table;
  }
};

}  // namespace gradbus::test
