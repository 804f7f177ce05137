// How a gradbus_code becomes a Python exception: gradbus._errors owns the classes, this finds them.
// Call with the GIL held.
#pragma once

#include <string>
#include <string_view>

#include "gradbus/gradbus.h"

namespace gradbus::python {

// What a call into libgradbus said; taken on the calling thread, where its message lives.
struct Outcome {
  gradbus_code code = GRADBUS_OK;
  std::string message;
};

Outcome outcome_of(gradbus_code code);

[[noreturn]] void throw_error(gradbus_code code, const std::string& message);
// "GB-O900 BAD_ARGUMENT: <what> | next: <next>"
[[noreturn]] void throw_invalid(std::string_view what, std::string_view next);

void throw_unless_ok(const Outcome& outcome);

}  // namespace gradbus::python
