// A test double of libgradbus_cuda.so, for tests only: what it is and has, the file it is built to
// says (CMakeLists.txt). It reaches no device.
//   GRADBUS_DOUBLE_ABI       its version
//   GRADBUS_DOUBLE_DEVICES   GPUs it has; -1: no driver
//   GRADBUS_DOUBLE_HOLE      a function is missing
//   GRADBUS_DOUBLE_NAMELESS  it has no entry
#include <cstdlib>

#include "compression/cuda/plugin.h"

namespace gradbus {
namespace {

constexpr uint64_t kMemoryBytes = 1 << 20;

const char* last_error() {
  return GRADBUS_DOUBLE_DEVICES < 0 ? "no NVIDIA driver (libcuda.so.1)"
                                    : "cudaMalloc: out of memory";
}

CudaResult device_count(uint32_t* count) {
  *count = GRADBUS_DOUBLE_DEVICES < 0 ? 0 : static_cast<uint32_t>(GRADBUS_DOUBLE_DEVICES);
  return GRADBUS_DOUBLE_DEVICES < 0 ? CudaResult::kNoDriver : CudaResult::kOk;
}

CudaResult device_info(uint32_t device, CudaDeviceInfo* info) {
  *info = {.name = "a double", .major = 9, .minor = device, .memory_bytes = kMemoryBytes};
  return CudaResult::kOk;
}

CudaResult allocate(uint32_t, uint64_t bytes, void** memory) {
  if (bytes > kMemoryBytes) return CudaResult::kOutOfMemory;
  *memory = std::malloc(bytes);
  return CudaResult::kOk;
}

CudaResult release(void* memory) {
  std::free(memory);
  return CudaResult::kOk;
}

template <typename... Arguments>
CudaResult fails(Arguments...) {
  return CudaResult::kFailed;
}

const CudaTable kTable{
    .abi = GRADBUS_DOUBLE_ABI,
    .table_bytes = sizeof(CudaTable),
    .built = "double",
    .last_error = last_error,
    .device_count = device_count,
    .device_info = device_info,
    .allocate = allocate,
    .free = [](uint32_t, void* memory) { return release(memory); },
    .allocate_host = [](uint64_t bytes, void** memory) { return allocate(0, bytes, memory); },
    .free_host = release,
    .create_stream = fails,
    .destroy_stream = fails,
    .synchronize = fails,
    .create_event = fails,
    .destroy_event = fails,
    .record_event = fails,
    .query_event = fails,
    .wait_event = fails,
    .copy = fails,
    .encode = fails,
    .apply = GRADBUS_DOUBLE_HOLE ? nullptr : fails<CudaStream*, const CudaApply*>};

}  // namespace

#if !GRADBUS_DOUBLE_NAMELESS
extern "C" const CudaTable* gradbus_cuda_table() { return &kTable; }
#else
const CudaTable* gradbus_cuda_other() { return &kTable; }
#endif

}  // namespace gradbus
