#include "worker_agent/gpu/cuda_plugin.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "common/errors.h"

namespace gradbus {
namespace {

constexpr uint32_t kDevicesMax = 64;

// From `built` on, the table consists of pointers only.
bool is_whole(const CudaTable& table) {
  constexpr size_t kFirst = offsetof(CudaTable, built);
  static_assert((sizeof(CudaTable) - kFirst) % sizeof(void*) == 0);
  std::array<const void*, (sizeof(CudaTable) - kFirst) / sizeof(void*)> pointers{};
  std::memcpy(pointers.data(), reinterpret_cast<const std::byte*>(&table) + kFirst,
              sizeof(pointers));
  return std::none_of(pointers.begin(), pointers.end(),
                      [](const void* pointer) { return pointer == nullptr; });
}

Status check(const CudaTable* table, const std::string& file) {
  if (table == nullptr) return error("D620", file + " has no table of functions");
  if (table->abi != kCudaAbi)
    return error("D621", file + " is of version " + std::to_string(table->abi) +
                             ", this program needs " + std::to_string(kCudaAbi));
  if (table->table_bytes != sizeof(CudaTable) || !is_whole(*table))
    return error("D621", file + " lacks functions of version " + std::to_string(kCudaAbi));
  return {};
}

Result<CudaPlugin> open_first(const std::vector<std::string>& places) {
  for (const std::string& place : places)
    if (access(place.c_str(), F_OK) == 0) return open_cuda_plugin(place);
  std::string all;
  for (const std::string& place : places) all += (all.empty() ? "" : " or ") + place;
  return error("D620", "no " + all);
}

std::string_view error_id(CudaResult result) {
  switch (result) {
    case CudaResult::kNoDriver:
    case CudaResult::kNoDevice: return "D622";
    case CudaResult::kOutOfMemory: return "D623";
    default: return "D624";
  }
}

}  // namespace

std::string program_directory() {
  std::error_code problem;
  return std::filesystem::read_symlink("/proc/self/exe", problem).parent_path();
}

// The library stays open, also on failure: other libraries that it loaded may have threads.
Result<CudaPlugin> open_cuda_plugin(const std::string& file) {
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return error("D620", dlerror());
  const auto entry = reinterpret_cast<CudaPluginEntry>(dlsym(handle, kCudaPluginEntry));
  if (entry == nullptr) return error("D620", file + " lacks " + kCudaPluginEntry);
  const CudaTable* table = entry();
  GRADBUS_RETURN_IF_ERROR(check(table, file));
  return CudaPlugin{file, table};
}

std::vector<std::string> cuda_plugin_places(const std::string& program_directory) {
  const char* chosen = std::getenv("GRADBUS_CUDA_PLUGIN");
  if (chosen != nullptr && *chosen != '\0') return {chosen};
  std::vector<std::string> places;
  for (const std::string folder : {"lib", GRADBUS_LIBRARY_FOLDER}) {
    const std::filesystem::path place =
        std::filesystem::path(program_directory).parent_path() / folder / kCudaPluginFile;
    if (places.empty() || places.front() != place) places.push_back(place);
  }
  return places;
}

Result<const CudaPlugin*> system_cuda_plugin() {
  static const Result<CudaPlugin> plugin = open_first(cuda_plugin_places(program_directory()));
  if (!plugin.ok()) return plugin.status();
  return &plugin.value();
}

Status cuda_status(const CudaPlugin& plugin, CudaResult result, std::string_view what) {
  if (result == CudaResult::kOk) return {};
  return error(error_id(result), std::string(what) + ": " + plugin.table->last_error());
}

Result<std::vector<CudaDeviceInfo>> cuda_devices(const CudaPlugin& plugin) {
  uint32_t count = 0;
  GRADBUS_RETURN_IF_ERROR(cuda_status(plugin, plugin.table->device_count(&count), "GPUs"));
  if (count == 0) return error("D622", "the NVIDIA driver has no GPU");
  std::vector<CudaDeviceInfo> devices;
  for (uint32_t i = 0; i < count && i < kDevicesMax; ++i) {
    CudaDeviceInfo info;
    GRADBUS_RETURN_IF_ERROR(
        cuda_status(plugin, plugin.table->device_info(i, &info), "GPU " + std::to_string(i)));
    info.name[sizeof(info.name) - 1] = '\0';
    devices.push_back(info);
  }
  return devices;
}

}  // namespace gradbus
