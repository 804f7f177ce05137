#include "client_lib/src/capi/structs.h"

#include <string>

#include "client_lib/src/capi/capi.h"

namespace gradbus::capi {
namespace {

// Far above every struct: more is a struct that was not initialized.
constexpr size_t kStructBytesMax = 1 << 14;

}  // namespace

Result<size_t> struct_bytes_of(const char* name, const void* object) {
  size_t bytes = 0;
  std::memcpy(&bytes, object, sizeof(bytes));
  if (bytes >= 2 * sizeof(size_t) && bytes <= kStructBytesMax) return bytes;
  return error("V801", std::string(name) + ".struct_bytes is " + std::to_string(bytes),
               std::string("call ") + name + "_init() first");
}

Status check_unknown(const char* name, const std::byte* fields, size_t bytes) {
  if (std::all_of(fields, fields + bytes, [](std::byte byte) { return byte == std::byte{0}; }))
    return {};
  return error(
      "V801", std::string(name) + " sets a field that libgradbus " GRADBUS_VERSION " does not know",
      "use the libgradbus of the gradbus.h that it was compiled with, or leave newer "
      "fields as " +
          std::string(name) + "_init() sets them");
}

}  // namespace gradbus::capi

void gradbus_init_struct(void* object, size_t bytes) {
  if (object == nullptr || bytes < sizeof(bytes)) return;
  std::memset(object, 0, bytes);
  std::memcpy(object, &bytes, sizeof(bytes));
}
