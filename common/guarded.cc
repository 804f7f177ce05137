#include "common/guarded.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include "common/errors.h"

namespace gradbus {
namespace {

std::string mib(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

// "this process uses 812 MiB of memory and 3071 MiB of address space, of which it may have 3072
// MiB"
std::string memory_of_this_process() {
  unsigned long long pages = 0;
  unsigned long long resident = 0;
  if (std::FILE* const file = std::fopen("/proc/self/statm", "re"); file != nullptr) {
    if (std::fscanf(file, "%llu %llu", &pages, &resident) != 2) pages = resident = 0;
    std::fclose(file);
  }
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  std::string text = "this process uses " + mib(resident * page) + " of memory and " +
                     mib(pages * page) + " of address space";
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    text += ", of which it may have " + mib(limit.rlim_cur);
  return text;
}

Status out_of_memory() {
  return error("S202", "an allocation failed; " + memory_of_this_process());
}

}  // namespace

Status status_of_exception() noexcept try {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::length_error&) {
    return out_of_memory();
  } catch (const std::exception& problem) {
    return error("X001", problem.what());
  } catch (...) {
    return error("X001", "an exception of unknown type");
  }
} catch (...) {
  return Status(Code::kExhausted, "");  // no memory even for the sentence
}

}  // namespace gradbus
