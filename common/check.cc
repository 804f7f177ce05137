#include "common/check.h"

#include <cstdio>
#include <cstdlib>

namespace gradbus {

void check_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "GB-X001 INTERNAL: check failed: %s at %s:%d | next: please report it\n",
               expression, file, line);
  std::abort();
}

}  // namespace gradbus
