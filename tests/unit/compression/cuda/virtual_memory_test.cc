// What the plug-in asks of CUDA's driver for memory that processes share, over a double of the
// driver that counts what it has given: whichever of its functions fails, all of it comes back.
#include "compression/cuda/virtual_memory.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace gradbus {
namespace {

constexpr size_t kUnit = 2 << 20;

// Handles count their holders and mappings; memory goes with the last of either.
struct Driver {
  std::map<CUmemGenericAllocationHandle, int> held;
  std::map<CUdeviceptr, CUmemGenericAllocationHandle> mapped;
  std::map<CUdeviceptr, size_t> reserved;
  std::map<CUdeviceptr, std::set<CUdevice>> users;
  uint64_t next = 1;
  int calls_left = -1;  // then one fails; -1: none does
  bool is_empty() const { return held.empty() && mapped.empty() && reserved.empty(); }
};
Driver now;

bool fails() { return now.calls_left >= 0 && now.calls_left-- == 0; }

CUresult let_go(CUmemGenericAllocationHandle handle) {
  if (--now.held.at(handle) == 0) now.held.erase(handle);
  return CUDA_SUCCESS;
}

void double_memory(CudaDriver& driver) {
  driver.granularity = [](size_t* unit, const CUmemAllocationProp*,
                          CUmemAllocationGranularity_flags) {
    *unit = kUnit;
    return fails() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  };
  driver.create = [](CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* how, unsigned long long) {
    EXPECT_EQ(bytes % kUnit, 0U);
    EXPECT_EQ(how->requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (fails()) return CUDA_ERROR_OUT_OF_MEMORY;
    now.held[*handle = now.next++] = 1;
    return CUDA_SUCCESS;
  };
  driver.import_from = [](CUmemGenericAllocationHandle* handle, void*, CUmemAllocationHandleType) {
    if (fails()) return CUDA_ERROR_INVALID_VALUE;
    now.held[*handle = now.next++] = 1;
    return CUDA_SUCCESS;
  };
  driver.release = let_go;
  driver.retain = [](CUmemGenericAllocationHandle* handle, void* address) {
    if (fails()) return CUDA_ERROR_INVALID_VALUE;
    ++now.held.at(*handle = now.mapped.at(reinterpret_cast<CUdeviceptr>(address)));
    return CUDA_SUCCESS;
  };
  driver.export_to = [](void* to, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType,
                        unsigned long long) {
    if (fails()) return CUDA_ERROR_INVALID_VALUE;
    *static_cast<int*>(to) = static_cast<int>(handle) + 100;
    return CUDA_SUCCESS;
  };
}

CudaDriver driver_double() {
  CudaDriver driver;
  double_memory(driver);
  driver.reserve = [](CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
    if (fails()) return CUDA_ERROR_OUT_OF_MEMORY;
    now.reserved[*address = kUnit * now.next++] = bytes;
    return CUDA_SUCCESS;
  };
  driver.unreserve = [](CUdeviceptr address, size_t bytes) {
    EXPECT_FALSE(now.mapped.contains(address)) << "given back while memory is mapped there";
    EXPECT_EQ(now.reserved.at(address), bytes);
    now.reserved.erase(address);
    return CUDA_SUCCESS;
  };
  driver.map = [](CUdeviceptr address, size_t bytes, size_t, CUmemGenericAllocationHandle handle,
                  unsigned long long) {
    EXPECT_EQ(now.reserved.at(address), bytes);
    if (fails()) return CUDA_ERROR_INVALID_VALUE;
    ++now.held.at(handle);
    now.mapped[address] = handle;
    return CUDA_SUCCESS;
  };
  driver.unmap = [](CUdeviceptr address, size_t) {
    if (fails()) return CUDA_ERROR_INVALID_VALUE;
    const auto found = now.mapped.extract(address);
    now.users.erase(address);
    return let_go(found.mapped());
  };
  driver.set_access = [](CUdeviceptr address, size_t, const CUmemAccessDesc* access, size_t count) {
    if (fails()) return CUDA_ERROR_INVALID_DEVICE;
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(access[i].flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
      now.users[address].insert(access[i].location.id);
    }
    return CUDA_SUCCESS;
  };
  return driver;
}

constexpr auto kType = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

TEST(VirtualMemory, IsMappedForItsUsersAndGoesWhenItIsUnmapped) {
  now = {};
  const CudaDriver driver = driver_double();
  MappedMemory memory;
  ASSERT_TRUE(map_new_memory(driver, kType, kUnit + 1, {3, 5}, memory).ok());
  EXPECT_EQ(memory.bytes, 2 * kUnit);
  EXPECT_EQ(now.users.at(memory.address), (std::set<CUdevice>{3, 5}));
  EXPECT_EQ(now.held.at(now.mapped.at(memory.address)), 1) << "by the mapping alone";
  int descriptor = -1;
  ASSERT_TRUE(export_memory(driver, memory, kType, &descriptor).ok());
  EXPECT_GE(descriptor, 100);
  EXPECT_EQ(now.held.at(now.mapped.at(memory.address)), 1);
  ASSERT_TRUE(unmap_memory(driver, memory).ok());
  EXPECT_TRUE(now.is_empty());
}

TEST(VirtualMemory, WhatIsImportedIsOneUsersAndGoesWhenItIsUnmapped) {
  now = {};
  const CudaDriver driver = driver_double();
  MappedMemory memory;
  ASSERT_TRUE(map_imported_memory(driver, kType, nullptr, 3 * kUnit, 2, memory).ok());
  EXPECT_EQ(memory.bytes, 3 * kUnit);
  EXPECT_EQ(now.users.at(memory.address), std::set<CUdevice>{2});
  EXPECT_EQ(now.held.at(now.mapped.at(memory.address)), 1);
  ASSERT_TRUE(unmap_memory(driver, memory).ok());
  EXPECT_TRUE(now.is_empty());
}

// Expect: the answer names the function that failed, and nothing is left behind.
TEST(VirtualMemory, WhateverFailsLeavesNothing) {
  const CudaDriver driver = driver_double();
  const std::string making[] = {"cuMemGetAllocationGranularity", "cuMemCreate",
                                "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"};
  for (int call = 0; call < 5; ++call) {
    now = {};
    now.calls_left = call;
    MappedMemory memory;
    const DriverAnswer answer = map_new_memory(driver, kType, 1, {0}, memory);
    EXPECT_FALSE(answer.ok()) << making[call];
    EXPECT_EQ(answer.what, making[call]);
    EXPECT_TRUE(now.is_empty()) << making[call];
  }
  const std::string opening[] = {"cuMemImportFromShareableHandle", "cuMemAddressReserve",
                                 "cuMemMap", "cuMemSetAccess"};
  for (int call = 0; call < 4; ++call) {
    now = {};
    now.calls_left = call;
    MappedMemory memory;
    const DriverAnswer answer = map_imported_memory(driver, kType, nullptr, kUnit, 0, memory);
    EXPECT_EQ(answer.what, opening[call]);
    EXPECT_TRUE(now.is_empty()) << opening[call];
  }
}

TEST(VirtualMemory, AnExportThatFailsHoldsNothing) {
  const CudaDriver driver = driver_double();
  for (int call = 0; call < 2; ++call) {
    now = {};
    MappedMemory memory;
    ASSERT_TRUE(map_new_memory(driver, kType, 1, {0}, memory).ok());
    now.calls_left = call;
    int descriptor = -1;
    EXPECT_FALSE(export_memory(driver, memory, kType, &descriptor).ok());
    EXPECT_EQ(descriptor, -1);
    ASSERT_TRUE(unmap_memory(driver, memory).ok());
    EXPECT_TRUE(now.is_empty());
  }
}

}  // namespace
}  // namespace gradbus
