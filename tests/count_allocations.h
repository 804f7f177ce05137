// For programs that must not allocate at some point: a test that links count_allocations.cc has its
// operator new replaced by one that counts, in all its threads.
#pragma once

#include <cstdint>

namespace gradbus::test {

// Calls of operator new so far.
uint64_t allocations();

}  // namespace gradbus::test
