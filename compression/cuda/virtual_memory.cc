#include "compression/cuda/virtual_memory.h"

namespace gradbus {
namespace {

DriverAnswer grant(const CudaDriver& driver, const MappedMemory& memory,
                   const std::vector<CUdevice>& users) {
  std::vector<CUmemAccessDesc> access(users.size());
  for (size_t i = 0; i < users.size(); ++i) {
    access[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access[i].location.id = users[i];
    access[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  return {driver.set_access(memory.address, memory.bytes, access.data(), access.size()),
          "cuMemSetAccess"};
}

// Somewhere in this process, for these devices. The handle stays the caller's.
DriverAnswer map(const CudaDriver& driver, CUmemGenericAllocationHandle handle,
                 const std::vector<CUdevice>& users, MappedMemory& memory) {
  DriverAnswer answer{driver.reserve(&memory.address, memory.bytes, 0, 0, 0),
                      "cuMemAddressReserve"};
  if (!answer.ok()) return answer;
  answer = {driver.map(memory.address, memory.bytes, 0, handle, 0), "cuMemMap"};
  if (answer.ok()) {
    answer = grant(driver, memory, users);
    if (answer.ok()) return answer;
    driver.unmap(memory.address, memory.bytes);
  }
  driver.unreserve(memory.address, memory.bytes);
  return answer;
}

}  // namespace

DriverAnswer map_new_memory(const CudaDriver& driver, CUmemAllocationHandleType type, size_t bytes,
                            const std::vector<CUdevice>& users, MappedMemory& memory) {
  CUmemAllocationProp how{};
  how.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  how.requestedHandleTypes = type;
  how.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  how.location.id = users.front();
  size_t unit = 0;
  DriverAnswer answer{driver.granularity(&unit, &how, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                      "cuMemGetAllocationGranularity"};
  if (!answer.ok()) return answer;
  if (unit == 0) return {CUDA_ERROR_INVALID_VALUE, answer.what};
  memory.bytes = (bytes + unit - 1) / unit * unit;
  CUmemGenericAllocationHandle handle = 0;
  answer = {driver.create(&handle, memory.bytes, &how, 0), "cuMemCreate"};
  if (!answer.ok()) return answer;
  answer = map(driver, handle, users, memory);
  driver.release(handle);
  return answer;
}

DriverAnswer map_imported_memory(const CudaDriver& driver, CUmemAllocationHandleType type,
                                 void* handle, size_t bytes, CUdevice user, MappedMemory& memory) {
  memory.bytes = bytes;
  CUmemGenericAllocationHandle imported = 0;
  DriverAnswer answer{driver.import_from(&imported, handle, type),
                      "cuMemImportFromShareableHandle"};
  if (!answer.ok()) return answer;
  answer = map(driver, imported, {user}, memory);
  driver.release(imported);
  return answer;
}

DriverAnswer export_memory(const CudaDriver& driver, const MappedMemory& memory,
                           CUmemAllocationHandleType type, void* handle) {
  CUmemGenericAllocationHandle held = 0;
  DriverAnswer answer{driver.retain(&held, reinterpret_cast<void*>(memory.address)),
                      "cuMemRetainAllocationHandle"};
  if (!answer.ok()) return answer;
  answer = {driver.export_to(handle, held, type, 0), "cuMemExportToShareableHandle"};
  driver.release(held);
  return answer;
}

DriverAnswer unmap_memory(const CudaDriver& driver, const MappedMemory& memory) {
  const DriverAnswer unmapped{driver.unmap(memory.address, memory.bytes), "cuMemUnmap"};
  if (!unmapped.ok()) return unmapped;  // addresses that are in use cannot be given back
  return {driver.unreserve(memory.address, memory.bytes), "cuMemAddressFree"};
}

}  // namespace gradbus
