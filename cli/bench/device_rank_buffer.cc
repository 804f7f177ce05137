#include "cli/bench/device_rank_buffer.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "cli/bench/benchmark.h"

namespace gradbus {
namespace {

constexpr int kCopies = 10;

CudaMemoryShare to_share(const gradbus_device_memory& memory) {
  CudaMemoryShare share{
      static_cast<CudaSharing>(memory.sharing), memory.descriptor, memory.bytes, {}};
  std::memcpy(share.handle.bytes, memory.handle, sizeof(share.handle.bytes));
  return share;
}

CudaShare to_share(const unsigned char (&bytes)[64]) {
  CudaShare share;
  std::memcpy(share.bytes, bytes, sizeof(share.bytes));
  return share;
}

}  // namespace

// ---- the GPU

Status BenchDevice::told(CudaResult result, const char* what) const {
  if (result == CudaResult::kOk) return {};
  return cuda_status(plugin_, result, std::string(what) + " on GPU " + std::to_string(number_));
}

Result<std::shared_ptr<BenchDevice>> BenchDevice::open(gradbus_session* session) {
  const Result<const CudaPlugin*> plugin = system_cuda_plugin();
  if (!plugin.ok()) return plugin.status();
  const auto devices = cuda_devices(*plugin.value());
  if (!devices.ok()) return devices.status();
  const auto number = static_cast<uint32_t>(static_cast<size_t>(gradbus_local_rank(session)) %
                                            devices.value().size());
  std::shared_ptr<BenchDevice> device(
      new BenchDevice(*plugin.value(), number, devices.value()[number]));
  GRADBUS_RETURN_IF_ERROR(
      device->told(device->cuda().create_stream(number, &device->stream_), "a stream"));
  GRADBUS_RETURN_IF_ERROR(device->try_all(session));
  return device;
}

BenchDevice::~BenchDevice() {
  if (stream_ != nullptr) cuda().destroy_stream(stream_);
}

Status BenchDevice::try_all(gradbus_session* session) const {
  gradbus_device_trial trial;
  gradbus_device_trial_init(&trial);
  GRADBUS_RETURN_IF_ERROR(to_status(gradbus_try_device(session, uuid(), &trial)));
  std::string reasons[std::size(trial.memory)];
  const char* why_not[std::size(trial.memory)] = {};
  for (uint64_t i = 0; i < trial.count; ++i) {
    reasons[i] = try_one(trial.memory[i], trial.event).message();
    if (!reasons[i].empty()) why_not[i] = reasons[i].c_str();
  }
  return to_status(gradbus_device_tried(session, uuid(), why_not));
}

Status BenchDevice::try_one(const gradbus_device_memory& memory, const unsigned char* event) const {
  const CudaMemoryShare share = to_share(memory);
  CudaShare event_share;
  std::memcpy(event_share.bytes, event, sizeof(event_share.bytes));
  void* opened = nullptr;
  CudaEvent* opened_event = nullptr;
  GRADBUS_RETURN_IF_ERROR(told(cuda().open(number_, &share, &opened), "memory"));
  const Status can = told(cuda().open_event(number_, &event_share, &opened_event), "an event");
  if (opened_event != nullptr) cuda().destroy_event(opened_event);
  const Status closed = told(cuda().close(number_, opened), "memory");
  return can.ok() ? closed : can;
}

Status BenchDevice::copy(void* to, const void* from, uint64_t bytes) const {
  GRADBUS_RETURN_IF_ERROR(told(cuda().copy(stream_, to, from, bytes), "a copy"));
  return told(cuda().synchronize(stream_), "a copy");
}

Result<double> BenchDevice::copy_seconds(const void* memory, uint64_t bytes) const {
  void* other = nullptr;
  CudaEvent* began = nullptr;
  CudaEvent* ended = nullptr;
  Status made = told(cuda().allocate(number_, bytes, &other), "memory");
  if (made.ok()) made = told(cuda().create_timer(number_, &began), "a timer");
  if (made.ok()) made = told(cuda().create_timer(number_, &ended), "a timer");
  const Result<double> best =
      made.ok() ? best_copy(other, memory, bytes, began, ended) : Result<double>(made);
  for (CudaEvent* const event : {began, ended})
    if (event != nullptr) cuda().destroy_event(event);
  if (other != nullptr) cuda().free(number_, other);
  return best;
}

Result<double> BenchDevice::best_copy(void* to, const void* from, uint64_t bytes, CudaEvent* began,
                                      CudaEvent* ended) const {
  double best = 1e300;
  for (int i = 0; i <= kCopies; ++i) {  // the first warms up
    float ms = 0;
    GRADBUS_RETURN_IF_ERROR(told(cuda().record_event(began, stream_), "a timer"));
    GRADBUS_RETURN_IF_ERROR(told(cuda().copy(stream_, to, from, bytes), "a copy"));
    GRADBUS_RETURN_IF_ERROR(told(cuda().record_event(ended, stream_), "a timer"));
    GRADBUS_RETURN_IF_ERROR(told(cuda().synchronize(stream_), "a copy"));
    GRADBUS_RETURN_IF_ERROR(told(cuda().elapsed(began, ended, &ms), "a timer"));
    if (i > 0) best = std::min(best, std::max(1e-9, static_cast<double>(ms) * 1e-3));
  }
  return best;
}

// ---- a tensor's elements there

Status BenchRankBuffer::open() {
  gradbus_device_memory memory;
  gradbus_device_rank_buffer rank_buffer;
  gradbus_device_rank_buffer_init(&rank_buffer);
  GRADBUS_RETURN_IF_ERROR(to_status(gradbus_tensor_device_memory(tensor_, &memory)));
  GRADBUS_RETURN_IF_ERROR(to_status(gradbus_tensor_device_rank_buffer(tensor_, &rank_buffer)));
  const CudaMemoryShare share = to_share(memory);
  const CudaShare ready = to_share(rank_buffer.ready);
  const CudaShare done = to_share(rank_buffer.done);
  const CudaTable& cuda = device_->cuda();
  const uint32_t number = device_->number();
  GRADBUS_RETURN_IF_ERROR(device_->told(cuda.open(number, &share, &memory_), "memory"));
  GRADBUS_RETURN_IF_ERROR(device_->told(cuda.open_event(number, &ready, &ready_), "an event"));
  GRADBUS_RETURN_IF_ERROR(device_->told(cuda.open_event(number, &done, &done_), "an event"));
  return wait();  // it is zeros then
}

BenchRankBuffer::~BenchRankBuffer() {
  const CudaTable& cuda = device_->cuda();
  cuda.synchronize(device_->stream());
  for (CudaEvent* const event : {ready_, done_})
    if (event != nullptr) cuda.destroy_event(event);
  if (memory_ != nullptr) cuda.close(device_->number(), memory_);
}

Status BenchRankBuffer::start() {
  GRADBUS_RETURN_IF_ERROR(
      device_->told(device_->cuda().record_event(ready_, device_->stream()), "an event"));
  return to_status(gradbus_start(tensor_));
}

Status BenchRankBuffer::wait() {
  GRADBUS_RETURN_IF_ERROR(to_status(gradbus_wait(tensor_, -1)));
  return device_->told(device_->cuda().wait_event(device_->stream(), done_), "an event");
}

}  // namespace gradbus
