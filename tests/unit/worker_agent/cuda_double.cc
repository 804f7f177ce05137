// A test double of libgradbus_cuda.so, for tests only: it reaches no device. What it is and has,
// GRADBUS_CUDA_DOUBLE says whenever it is asked: other_version, hole (a function is missing),
// no_driver, no_device; else it has two GPUs.
#include <cstdlib>
#include <string_view>

#include "compression/cuda/plugin.h"

namespace gradbus {
namespace {

constexpr uint64_t kMemoryBytes = 1 << 20;

bool is(std::string_view kind) {
  const char* chosen = std::getenv("GRADBUS_CUDA_DOUBLE");
  return chosen != nullptr && chosen == kind;
}

const char* last_error() {
  return is("no_driver") ? "no NVIDIA driver (libcuda.so.1)" : "cudaMalloc: out of memory";
}

CudaResult device_count(uint32_t* count) {
  *count = is("no_driver") || is("no_device") ? 0 : 2;
  return is("no_driver") ? CudaResult::kNoDriver : CudaResult::kOk;
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
    .abi = kCudaAbi,
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
    .native_stream = [](CudaStream*) -> void* { return nullptr; },
    .create_event = fails,
    .destroy_event = fails,
    .record_event = fails,
    .query_event = fails,
    .wait_event = fails,
    .copy = fails,
    .encode = fails,
    .apply = fails};

}  // namespace

extern "C" const CudaTable* gradbus_cuda_table() {
  static CudaTable table;
  table = kTable;
  if (is("other_version")) table.abi = 77;
  if (is("hole")) table.apply = nullptr;
  return &table;
}

}  // namespace gradbus
