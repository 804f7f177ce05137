#include "transport/rdma/verbs_library.h"

#include <dlfcn.h>

#include <string>

#include "common/errors.h"

namespace gradbus {

// The library stays open on success, because its providers keep state and threads.
Result<VerbsLibrary> open_verbs(const char* file) {
  void* handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return error("D607", dlerror(), "apt install libibverbs1");
  VerbsLibrary library;
  std::string missing;
#define GRADBUS_VERBS_LOAD(member, symbol)                                             \
  library.member = reinterpret_cast<decltype(library.member)>(dlsym(handle, #symbol)); \
  if (library.member == nullptr) missing += std::string(" ") + #symbol;
  GRADBUS_VERBS_SYMBOLS(GRADBUS_VERBS_LOAD)
#undef GRADBUS_VERBS_LOAD
  if (missing.empty()) return library;
  dlclose(handle);
  return error("D607", std::string(file) + " lacks" + missing, "install rdma-core 32 or newer");
}

Result<const VerbsLibrary*> system_verbs() {
  static const Result<VerbsLibrary> library = open_verbs("libibverbs.so.1");
  if (!library.ok()) return library.status();
  return &library.value();
}

}  // namespace gradbus
