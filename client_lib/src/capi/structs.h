// Structs of the C interface that callers of another version have in another size: gradbus.h,
// "structs that grow". Every struct begins with size_t struct_bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "common/status.h"

namespace gradbus::capi {

// The size that a caller says its struct has. GB-V801 for one that none has.
Result<size_t> struct_bytes_of(const char* name, const void* object);
// GB-V801 when a byte of these is not zero.
Status check_unknown(const char* name, const std::byte* fields, size_t bytes);

// Fields that the caller does not have stay as they are in `known`.
template <typename Struct>
Status read_struct(const char* name, const void* given, Struct& known) {
  const Result<size_t> bytes = struct_bytes_of(name, given);
  if (!bytes.ok()) return bytes.status();
  if (bytes.value() > sizeof(Struct))
    GRADBUS_RETURN_IF_ERROR(check_unknown(name,
                                          static_cast<const std::byte*>(given) + sizeof(Struct),
                                          bytes.value() - sizeof(Struct)));
  std::memcpy(&known, given, std::min(bytes.value(), sizeof(Struct)));
  known.struct_bytes = sizeof(Struct);
  return {};
}

// Elements lie struct_bytes of the first one apart.
template <typename Struct>
Result<std::vector<Struct>> read_structs(const char* name, const void* given, size_t count,
                                         const Struct& defaults) {
  std::vector<Struct> known(count, defaults);
  if (count == 0) return known;
  const Result<size_t> stride = struct_bytes_of(name, given);
  if (!stride.ok()) return stride.status();
  for (size_t i = 0; i < count; ++i)
    GRADBUS_RETURN_IF_ERROR(
        read_struct(name, static_cast<const std::byte*>(given) + i * stride.value(), known[i]));
  return known;
}

// Zeros where the caller has fields that are not known here.
template <typename Struct>
Status write_struct(const char* name, Struct known, void* given) {
  const Result<size_t> bytes = struct_bytes_of(name, given);
  if (!bytes.ok()) return bytes.status();
  known.struct_bytes = bytes.value();
  std::memset(given, 0, bytes.value());
  std::memcpy(given, &known, std::min(bytes.value(), sizeof(Struct)));
  return {};
}

}  // namespace gradbus::capi
