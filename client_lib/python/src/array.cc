// See array.h. Imports: nanobind's ndarray does DLPack and the buffer protocol; the oldest
// protocol,
// __array_interface__ (a dictionary), is read here.
#include "array.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "errors.h"

namespace nb = nanobind;

namespace gradbus::python {
namespace {

struct DtypeRow {
  gradbus_dtype dtype;
  nb::dlpack::dtype_code code;
  uint8_t bits;
  std::string_view typestr;  // __array_interface__, without the byte order; "" has none
};

constexpr std::array<DtypeRow, 13> kDtypes = {{
    {GRADBUS_F32, nb::dlpack::dtype_code::Float, 32, "f4"},
    {GRADBUS_F64, nb::dlpack::dtype_code::Float, 64, "f8"},
    {GRADBUS_F16, nb::dlpack::dtype_code::Float, 16, "f2"},
    {GRADBUS_BF16, nb::dlpack::dtype_code::Bfloat, 16, ""},
    {GRADBUS_I32, nb::dlpack::dtype_code::Int, 32, "i4"},
    {GRADBUS_I64, nb::dlpack::dtype_code::Int, 64, "i8"},
    {GRADBUS_U8, nb::dlpack::dtype_code::UInt, 8, "u1"},
    {GRADBUS_I8, nb::dlpack::dtype_code::Int, 8, "i1"},
    {GRADBUS_BOOL, nb::dlpack::dtype_code::Bool, 8, "b1"},
    {GRADBUS_I16, nb::dlpack::dtype_code::Int, 16, "i2"},
    {GRADBUS_U16, nb::dlpack::dtype_code::UInt, 16, "u2"},
    {GRADBUS_U32, nb::dlpack::dtype_code::UInt, 32, "u4"},
    {GRADBUS_U64, nb::dlpack::dtype_code::UInt, 64, "u8"},
}};

constexpr std::string_view kSupported =
    "pass float32, float64, float16, bfloat16, an integer of 8 to 64 bits or bool";

const DtypeRow& row_of(gradbus_dtype dtype) {
  return *std::find_if(kDtypes.begin(), kDtypes.end(),
                       [&](const DtypeRow& row) { return row.dtype == dtype; });
}

// Writable exporters need a non-const ndarray type, read-only ones (bytes, frozen arrays) a const
// one.
template <typename NdArray>
std::optional<Array> through_ndarray(nb::handle object, const std::string& what) {
  NdArray view;
  if (!nb::try_cast<NdArray>(object, view, /* convert = */ false)) return std::nullopt;
  const nb::dlpack::dtype found = view.dtype();
  const auto row = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const DtypeRow& candidate) {
    return static_cast<uint8_t>(candidate.code) == found.code && candidate.bits == found.bits &&
           found.lanes == 1;
  });
  if (row == kDtypes.end()) throw_invalid(what + " has an unsupported dtype", kSupported);
  Array array{
      const_cast<void*>(static_cast<const void*>(view.data())), view.size(), row->dtype, {}};
  array.keep_alive = nb::cast(std::move(view));
  return array;
}

uint64_t element_count(nb::handle shape) {
  uint64_t count = 1;
  for (nb::handle extent : shape) count *= nb::cast<uint64_t>(extent);
  return count;
}

std::optional<Array> through_interface(nb::handle object, Access access, const std::string& what) {
  nb::object found = nb::getattr(object, "__array_interface__", nb::none());
  if (!nb::isinstance<nb::dict>(found)) return std::nullopt;
  const nb::dict fields = nb::cast<nb::dict>(found);
  if (fields.contains("strides") && !fields["strides"].is_none()) {
    throw_invalid(what + " is not contiguous", "pass a contiguous copy");
  }
  const auto [address, read_only] = nb::cast<std::pair<uintptr_t, bool>>(fields["data"]);
  if (read_only && access == Access::kWrite) {
    throw_invalid(what + " is read-only", "pass a writable array");
  }
  const auto typestr = nb::cast<std::string>(fields["typestr"]);
  const auto row = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const DtypeRow& candidate) {
    return !candidate.typestr.empty() && typestr.substr(1) == candidate.typestr;
  });
  if (row == kDtypes.end() || typestr[0] == '>') {
    throw_invalid(what + " has an unsupported dtype " + typestr, kSupported);
  }
  return Array{reinterpret_cast<void*>(address), element_count(fields["shape"]), row->dtype,
               nb::borrow(object)};
}

}  // namespace

uint64_t Array::bytes() const { return count * row_of(dtype).bits / 8; }

Array array_of(nb::handle object, Access access, const std::string& what) {
  using Writable = nb::ndarray<nb::c_contig, nb::device::cpu>;
  using Readable = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
  std::optional<Array> array = access == Access::kWrite ? through_ndarray<Writable>(object, what)
                                                        : through_ndarray<Readable>(object, what);
  if (!array) array = through_interface(object, access, what);
  if (!array) {
    throw_invalid(what + " (" + nb::cast<std::string>(nb::str(object.type().attr("__name__"))) +
                      ") is not " + (access == Access::kWrite ? "a writable" : "a") +
                      " contiguous array in host memory",
                  "pass a numpy array, a torch CPU tensor, or an object with DLPack or the buffer "
                  "protocol");
  }
  return *std::move(array);
}

nb::object export_view(void* data, uint64_t count, gradbus_dtype dtype, nb::handle owner) {
  const DtypeRow& row = row_of(dtype);
  const size_t shape[1] = {count};
  nb::ndarray<nb::device::cpu> view(data, 1, shape, owner, nullptr,
                                    {static_cast<uint8_t>(row.code), row.bits, 1},
                                    nb::device::cpu::value);
  return nb::cast(view);
}

}  // namespace gradbus::python
