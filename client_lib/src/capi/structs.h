// Structs of the C interface that callers of another version have in another size: gradbus.h,
// "structs that grow". Every struct begins with size_t struct_bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
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

// An array of a caller, whose elements lie struct_bytes of the first one apart. It is not copied
// where all of them have this version's size, so it must outlive this.
template <typename Struct>
class StructArray {
 public:
  Status read(const char* name, const Struct* given, size_t count, const Struct& defaults) {
    const auto of_this_version = [](const Struct& one) { return one.struct_bytes == sizeof(one); };
    all_ = {given, count};
    if (std::all_of(all_.begin(), all_.end(), of_this_version)) return {};
    return copy(name, given, count, defaults);
  }
  std::span<const Struct> all() const { return all_; }

 private:
  Status copy(const char* name, const void* given, size_t count, const Struct& defaults) {
    const Result<size_t> stride = struct_bytes_of(name, given);
    if (!stride.ok()) return stride.status();
    copies_.assign(count, defaults);
    for (size_t i = 0; i < count; ++i)
      GRADBUS_RETURN_IF_ERROR(
          read_struct(name, static_cast<const std::byte*>(given) + i * stride.value(), copies_[i]));
    all_ = copies_;
    return {};
  }

  std::span<const Struct> all_;
  std::vector<Struct> copies_;
};

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
