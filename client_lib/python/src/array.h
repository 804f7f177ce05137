// The memory behind a Python array: numpy, torch, jax, array.array, memoryview, anything that
// speaks DLPack, the buffer protocol or __array_interface__ (tried in this order). No framework is
// imported.
//
// Call with the GIL held. Invariants: the memory is C-contiguous host memory and stays valid while
// the Array lives (it holds a reference to the exporter).
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

#include "gradbus/gradbus.h"

namespace gradbus::python {

struct Array {
  void* data = nullptr;
  uint64_t count = 0;
  gradbus_dtype dtype = GRADBUS_F32;
  nanobind::object keep_alive;

  uint64_t bytes() const;
};

enum class Access { kRead, kWrite };

// Throws InvalidError naming `what` (e.g. "allreduce: tensor 'loss'") and the dtype, device or
// layout that is not supported.
Array array_of(nanobind::handle object, Access access, const std::string& what);

// A view of `count` elements of shared memory that Python frameworks import without a copy. The
// view keeps `owner` alive.
nanobind::object export_view(void* data, uint64_t count, gradbus_dtype dtype,
                             nanobind::handle owner);

}  // namespace gradbus::python
