// See errors.h.
#include "errors.h"

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace gradbus::python {

Outcome outcome_of(gradbus_code code) {
  return {code, code == GRADBUS_OK ? std::string() : std::string(gradbus_last_error())};
}

void throw_error(gradbus_code code, const std::string& message) {
  nb::object make = nb::module_::import_("gradbus._errors").attr("error_of");
  nb::object error = make(static_cast<int>(code), message.c_str());
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

void throw_invalid(std::string_view what, std::string_view next) {
  std::string message = "GB-O900 BAD_ARGUMENT: ";
  message.append(what).append(" | next: ").append(next);
  throw_error(GRADBUS_INVALID, message);
}

void throw_unless_ok(const Outcome& outcome) {
  if (outcome.code != GRADBUS_OK) throw_error(outcome.code, outcome.message);
}

}  // namespace gradbus::python
