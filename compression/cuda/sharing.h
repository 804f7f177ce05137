// The plug-in's functions for memory and events that several processes have (plugin.h).
#pragma once

#include <cuda_runtime_api.h>

#include "compression/cuda/plugin.h"

namespace gradbus {

struct CudaEvent {
  int device;
  cudaEvent_t event;
};

CudaResult allocate_shared(uint32_t device, uint64_t bytes, CudaSharing sharing, void** memory);
// Of any memory that is this process's own.
CudaResult free_memory(uint32_t device, void* memory);
CudaResult share(uint32_t device, void* memory, CudaMemoryShare* share);
CudaResult open_memory(uint32_t device, const CudaMemoryShare* share, void** memory);
CudaResult close_memory(uint32_t device, void* memory);
CudaResult share_event(CudaEvent* event, CudaShare* share);
CudaResult open_event(uint32_t device, const CudaShare* share, CudaEvent** event);

}  // namespace gradbus
