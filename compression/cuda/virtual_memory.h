// Memory of a GPU that CUDA's driver maps where it is told to, so that another process can map it,
// too: by a file descriptor, or by a fabric handle of 64 bytes, neither of which needs what the
// runtime's IPC handles do.
//
// Memory lives while somebody has it mapped or holds a handle of it, in any process. So the handle
// is given up as soon as the memory is mapped here, and unmapping it is all that frees it; what
// fails half-way leaves nothing. Nothing here waits for a device: what uses the memory is over
// before it is unmapped.
//
// For the plug-in: the driver's functions are found at run time (sharing.cc); cuda.h gives types
// alone. Any thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <vector>

namespace gradbus {

struct CudaDriver {
  decltype(&cuGetErrorString) error_string = nullptr;
  decltype(&cuDeviceGet) device = nullptr;
  decltype(&cuDeviceGetAttribute) attribute = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) unreserve = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuMemRetainAllocationHandle) retain = nullptr;
  decltype(&cuMemExportToShareableHandle) export_to = nullptr;
  decltype(&cuMemImportFromShareableHandle) import_from = nullptr;
};

struct DriverAnswer {
  CUresult code = CUDA_SUCCESS;
  const char* what = "";  // the function that gave it
  bool ok() const { return code == CUDA_SUCCESS; }
};

struct MappedMemory {
  CUdeviceptr address = 0;
  size_t bytes = 0;  // of the mapping: at least what was asked for
};

// `type`: how it is to be exported. `users`: devices, the memory's own first.
DriverAnswer map_new_memory(const CudaDriver& driver, CUmemAllocationHandleType type, size_t bytes,
                            const std::vector<CUdevice>& users, MappedMemory& memory);
// `handle`: as cuMemImportFromShareableHandle() wants it. `bytes`: of the exporter's mapping.
DriverAnswer map_imported_memory(const CudaDriver& driver, CUmemAllocationHandleType type,
                                 void* handle, size_t bytes, CUdevice user, MappedMemory& memory);
// `handle`: as cuMemExportToShareableHandle() writes it; a descriptor is the caller's to close.
DriverAnswer export_memory(const CudaDriver& driver, const MappedMemory& memory,
                           CUmemAllocationHandleType type, void* handle);
DriverAnswer unmap_memory(const CudaDriver& driver, const MappedMemory& memory);

}  // namespace gradbus
