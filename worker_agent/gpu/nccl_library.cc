#include "worker_agent/gpu/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "common/errors.h"

namespace gradbus {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

template <typename Function>
void load(void* handle, const char* symbol, Function& member, std::string& missing) {
  member = reinterpret_cast<Function>(dlsym(handle, symbol));
  if (member == nullptr) missing += std::string(" ") + symbol;
}

}  // namespace

// The library stays open on success: it keeps threads of its own.
Result<NcclLibrary> open_nccl(const char* file) {
  void* handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return error("D625", dlerror());
  NcclLibrary library;
  std::string missing;
  load(handle, "ncclGetErrorString", library.error_text, missing);
#define GRADBUS_NCCL_LOAD(member, symbol, ...) load(handle, #symbol, library.member, missing);
  GRADBUS_NCCL_SYMBOLS(GRADBUS_NCCL_LOAD)
#undef GRADBUS_NCCL_LOAD
  if (!missing.empty()) {
    dlclose(handle);
    return error("D625", std::string(file) + " lacks" + missing);
  }
  GRADBUS_RETURN_IF_ERROR(check_nccl_version(library));
  return library;
}

Status check_nccl_version(const NcclLibrary& library) {
  int version = 0;
  if (library.get_version(&version) == NcclResult::kSuccess && version >= kNcclVersionMin)
    return {};
  return error("D625", "libnccl is version " + version_text(version) + ", older than " +
                           version_text(kNcclVersionMin));
}

Result<const NcclLibrary*> system_nccl() {
  const char* chosen = std::getenv("GRADBUS_NCCL");
  static const Result<NcclLibrary> library =
      open_nccl(chosen != nullptr && *chosen != '\0' ? chosen : "libnccl.so.2");
  if (!library.ok()) return library.status();
  return &library.value();
}

}  // namespace gradbus
