// A rank's elements in memory of its GPU, opened as a trainer does it that links CUDA: with the
// agent's memory and events (gradbus.h), by the plug-in. One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "common/status.h"
#include "gradbus/gradbus.h"
#include "worker_agent/gpu/cuda_plugin.h"

namespace gradbus {

// This rank's GPU: the one of its local rank, in turn where there are fewer.
class BenchDevice {
 public:
  // GB-D620 to D624. Tries what the agent offers, and tells it.
  static Result<std::shared_ptr<BenchDevice>> open(gradbus_session* session);
  ~BenchDevice();
  BenchDevice(const BenchDevice&) = delete;
  BenchDevice& operator=(const BenchDevice&) = delete;

  const unsigned char* uuid() const { return info_.uuid; }
  uint32_t number() const { return number_; }
  CudaStream* stream() const { return stream_; }
  const CudaTable& cuda() const { return *plugin_.table; }
  Status told(CudaResult result, const char* what) const;
  // Waits for it.
  Status copy(void* to, const void* from, uint64_t bytes) const;
  // The shortest of several copies of `bytes` from `memory` to other memory of this GPU.
  Result<double> copy_seconds(const void* memory, uint64_t bytes) const;

 private:
  BenchDevice(const CudaPlugin& plugin, uint32_t number, const CudaDeviceInfo& info)
      : plugin_(plugin), number_(number), info_(info) {}
  Status try_all(gradbus_session* session) const;
  Status try_one(const gradbus_device_memory& memory, const unsigned char* event) const;
  Result<double> best_copy(void* to, const void* from, uint64_t bytes, CudaEvent* began,
                           CudaEvent* ended) const;

  const CudaPlugin& plugin_;
  const uint32_t number_;
  const CudaDeviceInfo info_;
  CudaStream* stream_ = nullptr;
};

class BenchRankBuffer {
 public:
  BenchRankBuffer(std::shared_ptr<BenchDevice> device, gradbus_tensor* tensor)
      : device_(std::move(device)), tensor_(tensor) {}
  ~BenchRankBuffer();
  BenchRankBuffer(const BenchRankBuffer&) = delete;
  BenchRankBuffer& operator=(const BenchRankBuffer&) = delete;

  Status open();
  gradbus_tensor* tensor() const { return tensor_; }
  void* elements() const { return memory_; }
  // Behind what is on the stream: "my data is ready".
  Status start();
  // What is put on the stream from now on comes when the result is there.
  Status wait();

 private:
  const std::shared_ptr<BenchDevice> device_;
  gradbus_tensor* const tensor_;
  void* memory_ = nullptr;
  CudaEvent* ready_ = nullptr;
  CudaEvent* done_ = nullptr;
};

}  // namespace gradbus
