// The C ABI of libgradbus_cuda.so, which is all that the rest of Gradbus knows of CUDA: it is
// loaded at run time (worker_agent/gpu/cuda_plugin.h), so programs run where there is none.
//
// Any thread may call anything; a stream is used by one thread at a time. A function waits for a
// device only where its comment says so. The work of copy(), encode(), reduce() and the others is
// done in the stream's order. Its memory belongs to the stream until a later event has come.
//
// HOSTILE PAYLOADS. A payload of a peer arrives in host memory. Codec::check() checks it there,
// before it is copied to the device and before the first write. Besides, no byte of a payload is
// used as an index or a size. Kernels read and write what follows from `count` and the CudaCodec of
// the plan. So a payload that changes after the check gives wrong numbers and nothing worse. Lists
// of selections hold indices: the host makes them of payloads, and kernels compare each with
// `count` all the same.
//
// Append-only: a change of what is here raises kCudaAbi, and a plug-in of another one is refused.
#pragma once

#include <cstdint>

#include "compression/cuda/cuda_codec.h"
#include "compression/cuda/cuda_error_feedback.h"
#include "compression/cuda/cuda_linear.h"

namespace gradbus {

inline constexpr uint32_t kCudaAbi = 6;
inline constexpr char kCudaPluginFile[] = "libgradbus_cuda.so";
inline constexpr char kCudaPluginEntry[] = "gradbus_cuda_table";

enum class CudaResult : uint32_t {
  kOk = 0,
  kNotReady = 1,     // of query_event(): not yet
  kNoDriver = 2,     // none, or one older than the plug-in was built for
  kNoDevice = 3,     // a driver without a GPU, or no GPU of this number
  kOutOfMemory = 4,  // of the device, or of what the host may pin
  kInvalid = 5,      // an argument; nothing was done
  kFailed = 6,       // anything else; the device may be lost to this process
};

struct CudaDeviceInfo {
  char name[256] = {};
  uint32_t major = 0;  // compute capability
  uint32_t minor = 0;
  uint32_t multiprocessors = 0;
  uint32_t unused = 0;
  uint64_t memory_bytes = 0;
  uint8_t uuid[16] = {};  // the same in every process, whatever the numbers there
};

// Memory or an event of another process of this machine, as that process tells it to others. Plain
// bytes, meaningless but to the driver.
struct CudaShare {
  uint8_t bytes[64] = {};
};

// How memory of a device is opened by other processes. Numbers of proto/attach.h.
enum class CudaSharing : uint32_t {
  kLegacy = 1,      // CUDA's IPC handles: processes in one PID and IPC namespace
  kDescriptor = 2,  // mapped by the driver (VMM), by a file descriptor
  kFabric = 3,      // mapped by the driver, by a fabric handle, of GPUs that have them
};

struct CudaMemoryShare {
  CudaSharing sharing = CudaSharing::kLegacy;
  int32_t descriptor = -1;  // kDescriptor: who has it closes it; memory stays open without it
  uint64_t bytes = 0;       // kDescriptor, kFabric: of the mapping
  CudaShare handle = {};    // kLegacy, kFabric
};

struct CudaStream;  // of one device
struct CudaEvent;

struct CudaTable {
  uint32_t abi = kCudaAbi;
  uint32_t table_bytes = 0;     // sizeof(CudaTable)
  const char* built = nullptr;  // "CUDA 13.0"
  // About the last result of this thread that was not kOk; valid until its next call.
  const char* (*last_error)() = nullptr;

  CudaResult (*device_count)(uint32_t* count) = nullptr;
  CudaResult (*device_info)(uint32_t device, CudaDeviceInfo* info) = nullptr;

  // These may wait for the device. Memory of the host is pinned: with any other, copy() may wait.
  CudaResult (*allocate)(uint32_t device, uint64_t bytes, void** memory) = nullptr;
  // For other processes, too; kInvalid where a device's memory cannot be shared so. Of kDescriptor
  // and kFabric, all devices that reach this one can use it.
  CudaResult (*allocate_shared)(uint32_t device, uint64_t bytes, CudaSharing sharing,
                                void** memory) = nullptr;
  CudaResult (*free)(uint32_t device, void* memory) = nullptr;  // of either kind
  CudaResult (*allocate_host)(uint64_t bytes, void** memory) = nullptr;
  CudaResult (*free_host)(void* memory) = nullptr;
  CudaResult (*create_stream)(uint32_t device, CudaStream** stream) = nullptr;
  CudaResult (*destroy_stream)(CudaStream* stream) = nullptr;
  CudaResult (*synchronize)(CudaStream* stream) = nullptr;
  void* (*native_stream)(CudaStream* stream) = nullptr;  // its cudaStream_t, for NCCL
  CudaResult (*create_event)(uint32_t device, CudaEvent** event) = nullptr;
  CudaResult (*create_timer)(uint32_t device, CudaEvent** event) = nullptr;  // for elapsed()
  CudaResult (*create_shared_event)(uint32_t device, CudaEvent** event) = nullptr;
  CudaResult (*destroy_event)(CudaEvent* event) = nullptr;

  // An event comes when all that was put on the stream before record_event() is done.
  CudaResult (*record_event)(CudaEvent* event, CudaStream* stream) = nullptr;
  CudaResult (*query_event)(CudaEvent* event) = nullptr;
  CudaResult (*wait_event)(CudaStream* stream, CudaEvent* event) = nullptr;  // the stream waits
  // Adds 1 to an eventfd when all that was put on the stream before is done.
  CudaResult (*ring)(CudaStream* stream, int eventfd) = nullptr;
  // Between two timers that have come.
  CudaResult (*elapsed)(CudaEvent* began, CudaEvent* ended, float* ms) = nullptr;

  // Kernels and copies of a device's streams can use the memory of another one from now on, else
  // kInvalid.
  CudaResult (*reach)(uint32_t device, uint32_t other) = nullptr;
  // Memory of the host that is there already, such as a shared segment: copies of it need not wait.
  CudaResult (*pin)(void* memory, uint64_t bytes) = nullptr;
  CudaResult (*unpin)(void* memory) = nullptr;

  // Between processes: of what allocate_shared() gave, whole, and of shared events. share() may be
  // called again, and gives a descriptor each time. What was opened is closed before its owner
  // frees it; an event that was opened is destroyed as any other. A process need not be able to
  // open what is its own.
  CudaResult (*share)(uint32_t device, void* memory, CudaMemoryShare* share) = nullptr;
  CudaResult (*open)(uint32_t device, const CudaMemoryShare* share, void** memory) = nullptr;
  CudaResult (*close)(uint32_t device, void* memory) = nullptr;
  CudaResult (*share_event)(CudaEvent* event, CudaShare* share) = nullptr;
  CudaResult (*open_event)(uint32_t device, const CudaShare* share, CudaEvent** event) = nullptr;

  CudaResult (*copy)(CudaStream* stream, void* to, const void* from, uint64_t bytes) = nullptr;
  CudaResult (*encode)(CudaStream* stream, const CudaEncode* input) = nullptr;
  CudaResult (*apply)(CudaStream* stream, const CudaApply* input) = nullptr;
  CudaResult (*remember)(CudaStream* stream, const CudaMomentum* input) = nullptr;
  CudaResult (*forget)(CudaStream* stream, const CudaForget* input) = nullptr;
  CudaResult (*reduce)(CudaStream* stream, const CudaReduce* input) = nullptr;
  CudaResult (*low_rank)(CudaStream* stream, const CudaLowRank* input) = nullptr;
  CudaResult (*blocks)(CudaStream* stream, const CudaBlocks* input) = nullptr;
};

// What gradbus_cuda_table() of the plug-in is.
using CudaPluginEntry = const CudaTable* (*)();

}  // namespace gradbus
