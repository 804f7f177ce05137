// PlacedGradients: the `.grad` of each parameter of a bucket, as it was when all were found to be
// the memory of the bucket. It is asked some times in each training step, so it compares all of
// them in one call.
//
// It knows of torch only attributes that Python sees (grad, data_ptr(), _version, ...): it works
// with every version. It keeps parameters and gradients alive. Call with the GIL held.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

namespace gradbus::python {

class PlacedGradients {
 public:
  // Of parameters whose `.grad` is in place now.
  explicit PlacedGradients(const nanobind::list& parameters);

  // Each `.grad` is the same object, with the same memory in the same order: what backward has
  // added to it is in the bucket.
  bool is_intact();
  // Each `.grad` is the same object with the same memory; then note() remembers how often each was
  // written to.
  bool note();
  // Since note(), nobody has replaced or written to one.
  bool is_as_noted();
  // Each is in place and in the same order, and belongs to a parameter that trains and is
  // contiguous: the next backward pass can add to it.
  bool is_ready_for_more();
  // (gradient, version, address) of each, as noted.
  nanobind::list noted() const;

  // For Python's garbage collector: a parameter may lead back to the optimizer that keeps this.
  static int traverse(PyObject* self, visitproc visit, void* arg);
  static int clear(PyObject* self);

 private:
  struct Place {
    nanobind::object parameter;
    nanobind::object gradient;
    nanobind::object stride;
    uint64_t address;
    int64_t version;
    bool is_complex;
  };

  bool is_in_place(const Place& place) const;
  bool is_intact(const Place& place) const;

  std::vector<Place> places_;
};

}  // namespace gradbus::python
