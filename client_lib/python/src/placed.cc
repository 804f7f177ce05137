// See placed.h.
#include "placed.h"

#include <algorithm>
#include <utility>

namespace nb = nanobind;

namespace gradbus::python {
namespace {

// Names that are made once: looking one up is half of what such a call costs.
struct Names {
  nb::object grad = interned("grad");
  nb::object version = interned("_version");
  nb::object data_ptr = interned("data_ptr");
  nb::object stride = interned("stride");
  nb::object requires_grad = interned("requires_grad");
  nb::object is_contiguous = interned("is_contiguous");
  nb::object is_complex = interned("is_complex");
  nb::object is_conj = interned("is_conj");

 private:
  static nb::object interned(const char* name) {
    return nb::steal(PyUnicode_InternFromString(name));
  }
};

const Names& names() {
  static const Names* const kNames =
      new Names;  // Python may be gone when destructors of statics run
  return *kNames;
}

nb::object checked(PyObject* result) {
  if (result == nullptr) nb::raise_python_error();
  return nb::steal(result);
}

nb::object attribute(const nb::object& of, const nb::object& name) {
  return checked(PyObject_GetAttr(of.ptr(), name.ptr()));
}

nb::object called(const nb::object& of, const nb::object& method) {
  PyObject* self = of.ptr();  // PyObject_CallMethodNoArgs() is not in the stable interface
  return checked(
      PyObject_VectorcallMethod(method.ptr(), &self, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

uint64_t address_of(const nb::object& tensor) {
  const uint64_t address = PyLong_AsUnsignedLongLong(called(tensor, names().data_ptr).ptr());
  if (PyErr_Occurred() != nullptr) nb::raise_python_error();
  return address;
}

int64_t version_of(const nb::object& tensor) {
  const int64_t version = PyLong_AsLongLong(attribute(tensor, names().version).ptr());
  if (PyErr_Occurred() != nullptr) nb::raise_python_error();
  return version;
}

bool is_true(const nb::object& value) { return value.ptr() == Py_True; }

bool are_equal(const nb::object& left, const nb::object& right) {
  const int equal = PyObject_RichCompareBool(left.ptr(), right.ptr(), Py_EQ);
  if (equal < 0) nb::raise_python_error();
  return equal == 1;
}

}  // namespace

PlacedGradients::PlacedGradients(const nb::list& parameters) {
  places_.reserve(parameters.size());
  for (nb::handle handle : parameters) {
    nb::object parameter = nb::borrow(handle);
    nb::object gradient = attribute(parameter, names().grad);
    if (gradient.is_none()) throw nb::value_error("PlacedGradients: a parameter has no gradient");
    nb::object stride = called(gradient, names().stride);
    const uint64_t address = address_of(gradient);
    const int64_t version = version_of(gradient);
    const bool is_complex = is_true(called(gradient, names().is_complex));
    places_.push_back({std::move(parameter), std::move(gradient), std::move(stride), address,
                       version, is_complex});
  }
}

bool PlacedGradients::is_in_place(const Place& place) const {
  return attribute(place.parameter, names().grad).is(place.gradient) &&
         address_of(place.gradient) == place.address;
}

// After `.grad.data = ...` the same memory may be in another order, or be read as conjugated.
bool PlacedGradients::is_intact(const Place& place) const {
  return is_in_place(place) && are_equal(called(place.gradient, names().stride), place.stride) &&
         !(place.is_complex && is_true(called(place.gradient, names().is_conj)));
}

bool PlacedGradients::is_intact() {
  return std::all_of(places_.begin(), places_.end(),
                     [&](const Place& place) { return is_intact(place); });
}

bool PlacedGradients::note() {
  for (Place& place : places_) {
    if (!is_in_place(place)) return false;
    place.version = version_of(place.gradient);
  }
  return true;
}

bool PlacedGradients::is_as_noted() {
  return std::all_of(places_.begin(), places_.end(), [&](const Place& place) {
    return is_in_place(place) && version_of(place.gradient) == place.version;
  });
}

bool PlacedGradients::is_ready_for_more() {
  return std::all_of(places_.begin(), places_.end(), [&](const Place& place) {
    return is_intact(place) && is_true(attribute(place.parameter, names().requires_grad)) &&
           is_true(called(place.parameter, names().is_contiguous));
  });
}

nb::list PlacedGradients::noted() const {
  nb::list found;
  for (const Place& place : places_)
    found.append(nb::make_tuple(place.gradient, place.version, place.address));
  return found;
}

int PlacedGradients::traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  for (const Place& place : nb::inst_ptr<PlacedGradients>(self)->places_) {
    Py_VISIT(place.parameter.ptr());
    Py_VISIT(place.gradient.ptr());
    Py_VISIT(place.stride.ptr());
  }
  return 0;
}

int PlacedGradients::clear(PyObject* self) {
  // Their destructors may run Python code that comes back here.
  const std::vector<Place> gone = std::move(nb::inst_ptr<PlacedGradients>(self)->places_);
  return 0;
}

}  // namespace gradbus::python
