// A test double of libgradbus_cuda.so, for tests only: it reaches no device. What it is and has,
// GRADBUS_CUDA_DOUBLE says whenever it is asked: other_version, hole (a function is missing),
// no_driver, no_device; else it has two GPUs. Those of "processor" do what they are told to, by
// running the kernels on the processor before a call returns; those of any other word fail.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "compression/cuda/plugin.h"
#include "compression/cuda/works.h"
#include "tests/unit/compression/host_grid.h"

namespace gradbus {

using Clock = std::chrono::steady_clock;

struct CudaStream {
  uint32_t device;
};
struct CudaEvent {
  Clock::time_point came;
};

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
  if (bytes > kMemoryBytes && !is("processor")) return CudaResult::kOutOfMemory;
  *memory = std::malloc(bytes);
  return CudaResult::kOk;
}

CudaResult release(void* memory) {
  std::free(memory);
  return CudaResult::kOk;
}

template <typename Work>
CudaResult on_processor(const Work& work) {
  if (!is("processor")) return CudaResult::kFailed;
  work();
  return CudaResult::kOk;
}

CudaResult create_event(uint32_t, CudaEvent** event) {
  return on_processor([&] { *event = new CudaEvent{}; });
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
    .create_stream =
        [](uint32_t device, CudaStream** stream) {
          return on_processor([&] { *stream = new CudaStream{device}; });
        },
    .destroy_stream = [](CudaStream* stream) { return on_processor([&] { delete stream; }); },
    .synchronize = [](CudaStream*) { return on_processor([] {}); },
    .native_stream = [](CudaStream*) -> void* { return nullptr; },
    .create_event = create_event,
    .create_timer = create_event,
    .destroy_event = [](CudaEvent* event) { return on_processor([&] { delete event; }); },
    .record_event = [](CudaEvent* event,
                       CudaStream*) { return on_processor([&] { event->came = Clock::now(); }); },
    .query_event = [](CudaEvent*) { return on_processor([] {}); },
    .wait_event = [](CudaStream*, CudaEvent*) { return on_processor([] {}); },
    .elapsed =
        [](CudaEvent* began, CudaEvent* ended, float* ms) {
          return on_processor([&] {
            *ms = std::chrono::duration<float, std::milli>(ended->came - began->came).count();
          });
        },
    .copy = [](CudaStream*, void* to, const void* from,
               uint64_t bytes) { return on_processor([&] { std::memcpy(to, from, bytes); }); },
    .encode =
        [](CudaStream*, const CudaEncode* input) {
          return on_processor([&] {
            start_encode(*input, [](const auto& work) { run_on_host(work, GridOrder::kForwards); });
          });
        },
    .apply =
        [](CudaStream*, const CudaApply* input) {
          return on_processor([&] {
            start_apply(*input, [](const auto& work) { run_on_host(work, GridOrder::kForwards); });
          });
        }};

}  // namespace

extern "C" const CudaTable* gradbus_cuda_table() {
  static CudaTable table;
  table = kTable;
  if (is("other_version")) table.abi = 77;
  if (is("hole")) table.apply = nullptr;
  return &table;
}

}  // namespace gradbus
