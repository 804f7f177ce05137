// Assertions that stay on in production: they guard what only our own bug can break.
#pragma once

namespace gradbus {

[[noreturn]] void check_failed(const char* expression, const char* file, int line);

}  // namespace gradbus

#define GRADBUS_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::gradbus::check_failed(#condition, __FILE__, __LINE__))
