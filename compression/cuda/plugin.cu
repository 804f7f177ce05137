// libgradbus_cuda.so: plugin.h over the CUDA runtime, which is linked in statically and loads the
// driver when it is first called.
#include <cuda_runtime_api.h>
#include <sys/eventfd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>

#include "compression/cuda/answers.h"
#include "compression/cuda/kernels/works.h"
#include "compression/cuda/plugin.h"
#include "compression/cuda/sharing.h"

namespace gradbus {

struct CudaStream {
  int device;
  cudaStream_t stream;
};

namespace {

// ---- devices and memory

CudaResult device_count(uint32_t* count) {
  int found = 0;
  *count = 0;
  const CudaResult result = answer(cudaGetDeviceCount(&found), "cudaGetDeviceCount");
  *count = static_cast<uint32_t>(found);
  return result;
}

CudaResult device_info(uint32_t device, CudaDeviceInfo* info) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, static_cast<int>(device));
  if (error != cudaSuccess) return answer(error, "cudaGetDeviceProperties");
  *info = {};
  std::snprintf(info->name, sizeof(info->name), "%s", properties.name);
  info->major = static_cast<uint32_t>(properties.major);
  info->minor = static_cast<uint32_t>(properties.minor);
  info->multiprocessors = static_cast<uint32_t>(properties.multiProcessorCount);
  info->memory_bytes = properties.totalGlobalMem;
  static_assert(sizeof(properties.uuid) == sizeof(info->uuid));
  std::memcpy(info->uuid, &properties.uuid, sizeof(info->uuid));
  return CudaResult::kOk;
}

CudaResult allocate(uint32_t device, uint64_t bytes, void** memory) {
  if (const CudaResult result = use(device); result != CudaResult::kOk) return result;
  return answer(cudaMalloc(memory, bytes), "cudaMalloc");
}

CudaResult allocate_host(uint64_t bytes, void** memory) {
  return answer(cudaHostAlloc(memory, bytes, cudaHostAllocPortable), "cudaHostAlloc");
}

CudaResult free_host(void* memory) { return answer(cudaFreeHost(memory), "cudaFreeHost"); }

CudaResult pin(void* memory, uint64_t bytes) {
  return answer(cudaHostRegister(memory, bytes, cudaHostRegisterPortable), "cudaHostRegister");
}

CudaResult unpin(void* memory) { return answer(cudaHostUnregister(memory), "cudaHostUnregister"); }

CudaResult reach(uint32_t device, uint32_t other) {
  if (device == other) return CudaResult::kOk;
  if (const CudaResult result = use(device); result != CudaResult::kOk) return result;
  int possible = 0;
  const cudaError_t error =
      cudaDeviceCanAccessPeer(&possible, static_cast<int>(device), static_cast<int>(other));
  if (error != cudaSuccess) return answer(error, "cudaDeviceCanAccessPeer");
  if (possible == 0) return refuse("one GPU cannot use the other's memory");
  const cudaError_t enabled = cudaDeviceEnablePeerAccess(static_cast<int>(other), 0);
  if (enabled != cudaErrorPeerAccessAlreadyEnabled)
    return answer(enabled, "cudaDeviceEnablePeerAccess");
  cudaGetLastError();
  return CudaResult::kOk;
}

// ---- streams and events

CudaResult create_stream(uint32_t device, CudaStream** stream) {
  if (const CudaResult result = use(device); result != CudaResult::kOk) return result;
  cudaStream_t made = nullptr;
  const cudaError_t error = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
  if (error != cudaSuccess) return answer(error, "cudaStreamCreate");
  *stream = new CudaStream{static_cast<int>(device), made};
  return CudaResult::kOk;
}

CudaResult destroy_stream(CudaStream* stream) {
  const CudaResult result = answer(cudaStreamDestroy(stream->stream), "cudaStreamDestroy");
  delete stream;
  return result;
}

CudaResult synchronize(CudaStream* stream) {
  return answer(cudaStreamSynchronize(stream->stream), "cudaStreamSynchronize");
}

void* native_stream(CudaStream* stream) { return stream->stream; }

CudaResult create_event_with(uint32_t device, unsigned int flags, CudaEvent** event) {
  if (const CudaResult result = use(device); result != CudaResult::kOk) return result;
  cudaEvent_t made = nullptr;
  const cudaError_t error = cudaEventCreateWithFlags(&made, flags);
  if (error != cudaSuccess) return answer(error, "cudaEventCreate");
  *event = new CudaEvent{static_cast<int>(device), made};
  return CudaResult::kOk;
}

CudaResult create_event(uint32_t device, CudaEvent** event) {
  return create_event_with(device, cudaEventDisableTiming, event);
}

CudaResult create_timer(uint32_t device, CudaEvent** event) {
  return create_event_with(device, cudaEventDefault, event);
}

CudaResult create_shared_event(uint32_t device, CudaEvent** event) {
  return create_event_with(device, cudaEventDisableTiming | cudaEventInterprocess, event);
}

// The driver's thread: nothing of CUDA may be called here.
void ring_bell(void* eventfd) {
  eventfd_write(static_cast<int>(reinterpret_cast<intptr_t>(eventfd)), 1);
}

CudaResult ring(CudaStream* stream, int eventfd) {
  return answer(cudaLaunchHostFunc(stream->stream, ring_bell,
                                   reinterpret_cast<void*>(static_cast<intptr_t>(eventfd))),
                "cudaLaunchHostFunc");
}

CudaResult elapsed(CudaEvent* began, CudaEvent* ended, float* ms) {
  return answer(cudaEventElapsedTime(ms, began->event, ended->event), "cudaEventElapsedTime");
}

CudaResult destroy_event(CudaEvent* event) {
  const CudaResult result = answer(cudaEventDestroy(event->event), "cudaEventDestroy");
  delete event;
  return result;
}

CudaResult record_event(CudaEvent* event, CudaStream* stream) {
  return answer(cudaEventRecord(event->event, stream->stream), "cudaEventRecord");
}

CudaResult query_event(CudaEvent* event) {
  const cudaError_t error = cudaEventQuery(event->event);
  if (error != cudaErrorNotReady) return answer(error, "cudaEventQuery");
  cudaGetLastError();
  return CudaResult::kNotReady;
}

CudaResult wait_event(CudaStream* stream, CudaEvent* event) {
  return answer(cudaStreamWaitEvent(stream->stream, event->event, 0), "cudaStreamWaitEvent");
}

// ---- work

CudaResult copy(CudaStream* stream, void* to, const void* from, uint64_t bytes) {
  return answer(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream->stream),
                "cudaMemcpyAsync");
}

template <class Work>
__global__ void __launch_bounds__(kBlockThreads) run_work(const Work work) {
  __shared__ typename Work::Shared shared;
  const uint32_t phases = work.phases();
  for (uint32_t phase = 0; phase < phases; ++phase) {
    if (phase != 0) __syncthreads();
    work.run(phase, blockIdx.x, threadIdx.x, shared);
  }
}

bool is_aligned(const void* memory) {
  return memory != nullptr && reinterpret_cast<uintptr_t>(memory) % 16 == 0;
}

constexpr char kTooLong[] = "a partition of more than 2^29 elements";

CudaResult check(const CudaCodec& codec, uint32_t count, const void* payload) {
  if (!is_possible(codec)) return refuse("no codec is like that");
  if (count > kPartitionElementsMax) return refuse(kTooLong);
  if (!is_aligned(payload)) return refuse("a payload that is not aligned to 16 bytes");
  return CudaResult::kOk;
}

// Puts the kernels that works(start) lists on the stream.
template <class Works>
CudaResult start(CudaStream* stream, const Works& works) {
  if (const CudaResult result = use(static_cast<uint32_t>(stream->device));
      result != CudaResult::kOk)
    return result;
  works([stream](const auto& work) {
    run_work<<<work.blocks(), kBlockThreads, 0, stream->stream>>>(work);
  });
  return answer(cudaGetLastError(), "starting a kernel");
}

CudaResult encode(CudaStream* stream, const CudaEncode* input) {
  if (input->count != 0 && input->gradient == nullptr && input->residual == nullptr)
    return refuse("neither gradient nor residual");
  if (input->count != 0 && (input->momentum != nullptr) != (input->codec.momentum != 0))
    return refuse("a momentum that the codec has not, or none that it has");
  if (!is_possible(input->codec, input->choice, input->count))
    return refuse("no choice is like that");
  if (cuda_workspace_bytes(*input) != 0 && !is_aligned(input->workspace))
    return refuse("a workspace that is not aligned to 16 bytes");
  if (const CudaResult result = check(input->codec, input->count, input->payload);
      result != CudaResult::kOk)
    return result;
  return start(stream, [input](const auto& launch) { start_encode(*input, launch); });
}

CudaResult apply(CudaStream* stream, const CudaApply* input) {
  if (input->count != 0 && input->to == nullptr) return refuse("nothing to write to");
  if (input->entries > input->count) return refuse("a list longer than the partition");
  if (const CudaResult result = check(input->codec, input->count, input->payload);
      result != CudaResult::kOk)
    return result;
  return start(stream, [input](const auto& launch) { start_apply(*input, launch); });
}

CudaResult remember(CudaStream* stream, const CudaMomentum* input) {
  if (input->count > kPartitionElementsMax) return refuse(kTooLong);
  if (input->taken == nullptr) return refuse("no word for what was taken");
  if (input->count != 0 &&
      (input->gradient == nullptr || input->momentum == nullptr || input->residual == nullptr))
    return refuse("a vector of momentum correction is missing");
  return start(stream, [input](const auto& launch) { start_remember(*input, launch); });
}

CudaResult forget(CudaStream* stream, const CudaForget* input) {
  if (input->entries > input->count) return refuse("a list longer than the partition");
  if (input->list != nullptr && !is_aligned(input->list))
    return refuse("a list that is not aligned to 16 bytes");
  if (input->taken == nullptr) return refuse("no word for what was taken");
  if (input->count != 0 && (input->momentum == nullptr || input->residual == nullptr))
    return refuse("a vector of what is forgotten is missing");
  return start(stream, [input](const auto& launch) { start_forget(*input, launch); });
}

CudaResult reduce(CudaStream* stream, const CudaReduce* input) {
  if (input->count > kPartitionElementsMax) return refuse(kTooLong);
  if (!is_possible(*input)) return refuse("no reduction is like that");
  return start(stream, [input](const auto& launch) { start_reduce(*input, launch); });
}

CudaResult low_rank(CudaStream* stream, const CudaLowRank* input) {
  if (input->partition.count > kPartitionElementsMax) return refuse(kTooLong);
  if (!is_possible(*input)) return refuse("no matrix is like that");
  return start(stream, [input](const auto& launch) { start_low_rank(*input, launch); });
}

CudaResult blocks(CudaStream* stream, const CudaBlocks* input) {
  if (input->partition.count > kPartitionElementsMax) return refuse(kTooLong);
  if (!is_possible(*input)) return refuse("no blocks are like that");
  return start(stream, [input](const auto& launch) { start_blocks(*input, launch); });
}

#define GRADBUS_TEXT_OF(x) #x
#define GRADBUS_TEXT(x) GRADBUS_TEXT_OF(x)
constexpr char kBuilt[] =
    "CUDA " GRADBUS_TEXT(__CUDACC_VER_MAJOR__) "." GRADBUS_TEXT(__CUDACC_VER_MINOR__);

constexpr CudaTable kTable{.abi = kCudaAbi,
                           .table_bytes = sizeof(CudaTable),
                           .built = kBuilt,
                           .last_error = last_error,
                           .device_count = device_count,
                           .device_info = device_info,
                           .allocate = allocate,
                           .allocate_shared = allocate_shared,
                           .free = free_memory,
                           .allocate_host = allocate_host,
                           .free_host = free_host,
                           .create_stream = create_stream,
                           .destroy_stream = destroy_stream,
                           .synchronize = synchronize,
                           .native_stream = native_stream,
                           .create_event = create_event,
                           .create_timer = create_timer,
                           .create_shared_event = create_shared_event,
                           .destroy_event = destroy_event,
                           .record_event = record_event,
                           .query_event = query_event,
                           .wait_event = wait_event,
                           .ring = ring,
                           .elapsed = elapsed,
                           .reach = reach,
                           .pin = pin,
                           .unpin = unpin,
                           .share = share,
                           .open = open_memory,
                           .close = close_memory,
                           .share_event = share_event,
                           .open_event = open_event,
                           .copy = copy,
                           .encode = encode,
                           .apply = apply,
                           .remember = remember,
                           .forget = forget,
                           .reduce = reduce,
                           .low_rank = low_rank,
                           .blocks = blocks};

}  // namespace

extern "C" __attribute__((visibility("default"))) const CudaTable* gradbus_cuda_table() {
  return &kTable;
}

}  // namespace gradbus
