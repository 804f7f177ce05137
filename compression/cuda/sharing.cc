#include "compression/cuda/sharing.h"

#include <cstring>
#include <map>
#include <mutex>
#include <optional>

#include "compression/cuda/answers.h"
#include "compression/cuda/virtual_memory.h"

namespace gradbus {
namespace {

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CudaShare) &&
              sizeof(cudaIpcEventHandle_t) == sizeof(CudaShare));

constexpr char kNoSuchSharing[] = "the CUDA that this was built with shares no memory so";

// ---- the driver

// Of this version of the function, which is the one that cuda.h declares.
template <typename Function>
bool find(const char* name, [[maybe_unused]] unsigned version, Function& function) {
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  void* entry = nullptr;
#if CUDART_VERSION >= 12050
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &entry, version, cudaEnableDefault, &found);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &entry, cudaEnableDefault, &found);
#endif
  function = reinterpret_cast<Function>(entry);
  if (error != cudaSuccess) cudaGetLastError();
  return error == cudaSuccess && found == cudaDriverEntryPointSuccess && entry != nullptr;
}

std::optional<CudaDriver> find_driver() {
  constexpr unsigned kMapping = 10020;  // CUDA 10.2 had it first
  CudaDriver driver;
  const bool whole = find("cuGetErrorString", 6000, driver.error_string) &&
                     find("cuDeviceGet", 2000, driver.device) &&
                     find("cuDeviceGetAttribute", 2000, driver.attribute) &&
                     find("cuMemGetAllocationGranularity", kMapping, driver.granularity) &&
                     find("cuMemCreate", kMapping, driver.create) &&
                     find("cuMemRelease", kMapping, driver.release) &&
                     find("cuMemAddressReserve", kMapping, driver.reserve) &&
                     find("cuMemAddressFree", kMapping, driver.unreserve) &&
                     find("cuMemMap", kMapping, driver.map) &&
                     find("cuMemUnmap", kMapping, driver.unmap) &&
                     find("cuMemSetAccess", kMapping, driver.set_access) &&
                     find("cuMemRetainAllocationHandle", 11000, driver.retain) &&
                     find("cuMemExportToShareableHandle", kMapping, driver.export_to) &&
                     find("cuMemImportFromShareableHandle", kMapping, driver.import_from);
  return whole ? std::optional(driver) : std::nullopt;
}

const std::optional<CudaDriver>& driver() {
  static const std::optional<CudaDriver> found = find_driver();
  return found;
}

CudaResult answer_of(const DriverAnswer& said) {
  if (said.ok()) return CudaResult::kOk;
  const char* why = nullptr;
  driver()->error_string(said.code, &why);
  const bool full = said.code == CUDA_ERROR_OUT_OF_MEMORY;
  return answer(full ? CudaResult::kOutOfMemory : CudaResult::kFailed, said.what,
                why == nullptr ? "an error without a name" : why);
}

// ---- kinds of sharing

struct Kind {
  CUmemAllocationHandleType type;
  CUdevice_attribute supported;
  const char* else_said;
};

// None: the legacy one.
std::optional<Kind> kind_of(CudaSharing sharing) {
  switch (sharing) {
    case CudaSharing::kDescriptor:
      return Kind{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                  "this GPU's memory cannot be shared by file descriptors"};
#if CUDA_VERSION >= 12030
    case CudaSharing::kFabric:
      return Kind{CU_MEM_HANDLE_TYPE_FABRIC, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
                  "this GPU's memory has no fabric handles"};
#endif
    default: return std::nullopt;
  }
}

// The driver's number of the device, which can share its memory so.
CudaResult find_device(uint32_t device, const Kind& kind, CUdevice& found) {
  if (const CudaResult result = use(device); result != CudaResult::kOk) return result;
  if (!driver()) return refuse("the NVIDIA driver cannot map memory (CUDA 11.0 can)");
  const CUresult known = driver()->device(&found, static_cast<int>(device));
  if (known != CUDA_SUCCESS) return answer_of({known, "cuDeviceGet"});
  int possible = 0;
  const CUresult said = driver()->attribute(&possible, kind.supported, found);
  // An attribute that a driver does not know is of what it has not.
  if (said != CUDA_SUCCESS || possible == 0) return refuse(kind.else_said);
  return CudaResult::kOk;
}

// Devices that can reach this one's memory, itself first.
CudaResult find_users(uint32_t device, CUdevice own, std::vector<CUdevice>& users) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess)
    return answer(error, "cudaGetDeviceCount");
  users = {own};
  for (int other = 0; other < count; ++other) {
    if (other == static_cast<int>(device)) continue;
    int possible = 0;
    if (const cudaError_t error =
            cudaDeviceCanAccessPeer(&possible, other, static_cast<int>(device));
        error != cudaSuccess)
      return answer(error, "cudaDeviceCanAccessPeer");
    CUdevice found = 0;
    if (possible != 0 && driver()->device(&found, other) == CUDA_SUCCESS) users.push_back(found);
  }
  return CudaResult::kOk;
}

// ---- what is mapped here

struct Mapped {
  MappedMemory memory;
  CudaSharing sharing;
};

std::mutex mapped_mutex;
std::map<void*, Mapped> mapped;  // by address; the runtime has all other memory

void* remember(const MappedMemory& memory, CudaSharing sharing) {
  void* const address = reinterpret_cast<void*>(memory.address);
  const std::scoped_lock lock(mapped_mutex);
  mapped[address] = {memory, sharing};
  return address;
}

std::optional<Mapped> find_mapped(void* memory) {
  const std::scoped_lock lock(mapped_mutex);
  const auto found = mapped.find(memory);
  return found == mapped.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Mapped> forget_mapped(void* memory) {
  const std::scoped_lock lock(mapped_mutex);
  const auto found = mapped.extract(memory);
  return found.empty() ? std::nullopt : std::optional(found.mapped());
}

CudaResult share_mapped(const Mapped& found, CudaMemoryShare* share) {
  const Kind kind = *kind_of(found.sharing);
  *share = {.sharing = found.sharing, .bytes = found.memory.bytes};
  if (found.sharing == CudaSharing::kDescriptor)
    return answer_of(export_memory(*driver(), found.memory, kind.type, &share->descriptor));
  return answer_of(export_memory(*driver(), found.memory, kind.type, share->handle.bytes));
}

}  // namespace

CudaResult allocate_shared(uint32_t device, uint64_t bytes, CudaSharing sharing, void** memory) {
  const std::optional<Kind> kind = kind_of(sharing);
  if (!kind && sharing != CudaSharing::kLegacy) return refuse(kNoSuchSharing);
  if (!kind) {
    if (const CudaResult result = use(device); result != CudaResult::kOk) return result;
    return answer(cudaMalloc(memory, bytes), "cudaMalloc");
  }
  CUdevice own = 0;
  if (const CudaResult result = find_device(device, *kind, own); result != CudaResult::kOk)
    return result;
  std::vector<CUdevice> users;
  if (const CudaResult result = find_users(device, own, users); result != CudaResult::kOk)
    return result;
  MappedMemory made;
  const CudaResult result = answer_of(map_new_memory(*driver(), kind->type, bytes, users, made));
  if (result == CudaResult::kOk) *memory = remember(made, sharing);
  return result;
}

CudaResult free_memory(uint32_t device, void* memory) {
  if (const CudaResult result = use(device); result != CudaResult::kOk) return result;
  if (const std::optional<Mapped> found = forget_mapped(memory))
    return answer_of(unmap_memory(*driver(), found->memory));
  return answer(cudaFree(memory), "cudaFree");
}

CudaResult share(uint32_t device, void* memory, CudaMemoryShare* share) {
  if (const CudaResult result = use(device); result != CudaResult::kOk) return result;
  if (const std::optional<Mapped> found = find_mapped(memory)) return share_mapped(*found, share);
  cudaIpcMemHandle_t handle;
  const CudaResult result = answer(cudaIpcGetMemHandle(&handle, memory), "cudaIpcGetMemHandle");
  *share = {};
  std::memcpy(share->handle.bytes, &handle, sizeof(handle));
  return result;
}

CudaResult open_memory(uint32_t device, const CudaMemoryShare* share, void** memory) {
  const std::optional<Kind> kind = kind_of(share->sharing);
  if (!kind && share->sharing != CudaSharing::kLegacy) return refuse(kNoSuchSharing);
  if (!kind) {
    if (const CudaResult result = use(device); result != CudaResult::kOk) return result;
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, share->handle.bytes, sizeof(handle));
    return answer(cudaIpcOpenMemHandle(memory, handle, cudaIpcMemLazyEnablePeerAccess),
                  "cudaIpcOpenMemHandle");
  }
  CUdevice own = 0;
  if (const CudaResult result = find_device(device, *kind, own); result != CudaResult::kOk)
    return result;
  if (share->bytes == 0) return refuse("no memory is of no bytes");
  CudaShare words = share->handle;
  void* const handle = share->sharing == CudaSharing::kDescriptor
                           ? reinterpret_cast<void*>(static_cast<intptr_t>(share->descriptor))
                           : words.bytes;
  MappedMemory opened;
  const CudaResult result =
      answer_of(map_imported_memory(*driver(), kind->type, handle, share->bytes, own, opened));
  if (result == CudaResult::kOk) *memory = remember(opened, share->sharing);
  return result;
}

CudaResult close_memory(uint32_t device, void* memory) {
  if (const CudaResult result = use(device); result != CudaResult::kOk) return result;
  if (const std::optional<Mapped> found = forget_mapped(memory))
    return answer_of(unmap_memory(*driver(), found->memory));
  return answer(cudaIpcCloseMemHandle(memory), "cudaIpcCloseMemHandle");
}

CudaResult share_event(CudaEvent* event, CudaShare* share) {
  cudaIpcEventHandle_t handle;
  const CudaResult result =
      answer(cudaIpcGetEventHandle(&handle, event->event), "cudaIpcGetEventHandle");
  std::memcpy(share->bytes, &handle, sizeof(handle));
  return result;
}

CudaResult open_event(uint32_t device, const CudaShare* share, CudaEvent** event) {
  if (const CudaResult result = use(device); result != CudaResult::kOk) return result;
  cudaIpcEventHandle_t handle;
  std::memcpy(&handle, share->bytes, sizeof(handle));
  cudaEvent_t opened = nullptr;
  const cudaError_t error = cudaIpcOpenEventHandle(&opened, handle);
  if (error != cudaSuccess) return answer(error, "cudaIpcOpenEventHandle");
  *event = new CudaEvent{static_cast<int>(device), opened};
  return CudaResult::kOk;
}

}  // namespace gradbus
