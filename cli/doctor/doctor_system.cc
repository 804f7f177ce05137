#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "cli/doctor/doctor_findings.h"
#include "cli/launch/rank_start.h"
#include "common/cgroup.h"
#include "common/fd.h"
#include "common/units.h"

namespace gradbus {
namespace {

constexpr uint64_t kGigabyte = 1'000'000'000;
constexpr rlim_t kOpenFilesWanted = 1024;

uint64_t meminfo_bytes(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  uint64_t kibibytes = 0;
  std::string unit;
  while (file >> name >> kibibytes && std::getline(file, unit))
    if (name == key + ":") return kibibytes * 1024;
  return 0;
}

std::string limit_text(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : std::to_string(limit);
}

rlimit limit_of(__rlimit_resource resource) {
  rlimit limit{};
  getrlimit(resource, &limit);
  return limit;
}

// What the agent does with its segments: sized, sealed, then no longer resizable.
bool can_seal() {
  const Fd fd(memfd_create("gradbus-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid() || fallocate(fd.get(), 0, 0, 4096) != 0) return false;
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return false;
  return ftruncate(fd.get(), 8192) != 0 && errno == EPERM;
}

}  // namespace

std::vector<Finding> check_kernel() {
  utsname name{};
  uname(&name);
  int major = 0;
  int minor = 0;
  std::sscanf(name.release, "%d.%d", &major, &minor);
  const std::string value = std::string(name.sysname) + " " + name.release + " " + name.machine;
  // 5.9 brought close_range, the youngest system call in use; pidfd_open is older.
  if (major > 5 || (major == 5 && minor >= 9)) return {{Level::kOk, "kernel", value, "", true}};
  return {{Level::kMissing, "kernel", value, "use Linux 5.9 or newer", true}};
}

std::vector<Finding> check_cores() {
  const long all = sysconf(_SC_NPROCESSORS_ONLN);
  const int usable = usable_cores();
  const std::string value = std::to_string(usable) + " usable of " + std::to_string(all);
  if (usable >= 2) return {{Level::kOk, "cores", value, ""}};
  return {{Level::kWarn, "cores", value, "ranks and agent will share one core; give it more"}};
}

std::vector<Finding> check_memory() {
  uint64_t available = meminfo_bytes("MemAvailable");
  std::string value =
      bytes_text(available) + " available of " + bytes_text(meminfo_bytes("MemTotal"));
  if (const auto limit = read_cgroup_limits().memory; limit && limit->left() < available) {
    available = limit->left();
    value = bytes_text(available) + " left of this container's " + bytes_text(limit->bytes_max);
  }
  if (available >= kGigabyte) return {{Level::kOk, "memory", value, ""}};
  return {{Level::kWarn, "memory", value, "free memory: gradients live in it"}};
}

std::vector<Finding> check_shared_memory() {
  struct statvfs info {};
  if (statvfs("/dev/shm", &info) != 0)
    return {{Level::kWarn, "/dev/shm", std::string("none: ") + strerror(errno),
             "mount a tmpfs there: frameworks' data loaders use it"}};
  const uint64_t free_bytes = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  const std::string value = bytes_text(free_bytes) + " free of " +
                            bytes_text(static_cast<uint64_t>(info.f_blocks) * info.f_frsize);
  if (free_bytes >= kGigabyte / 4) return {{Level::kOk, "/dev/shm", value, ""}};
  return {{Level::kWarn, "/dev/shm", value, "make it larger (docker run --shm-size=2g)"}};
}

std::vector<Finding> check_memfd() {
  if (can_seal()) return {{Level::kOk, "memfd", "sealed memory works", "", true}};
  return {{Level::kMissing, "memfd", std::string("sealed memory fails: ") + strerror(errno),
           "allow memfd_create and F_ADD_SEALS (kernel, seccomp profile, memory limit)", true}};
}

std::vector<Finding> check_open_files() {
  const rlimit limit = limit_of(RLIMIT_NOFILE);
  const std::string value = limit_text(limit.rlim_cur) + ", up to " + limit_text(limit.rlim_max);
  if (limit.rlim_cur >= kOpenFilesWanted) return {{Level::kOk, "open files", value, ""}};
  return {{Level::kWarn, "open files", value, "ulimit -n 4096"}};
}

std::vector<Finding> check_locked_memory() {
  const rlimit limit = limit_of(RLIMIT_MEMLOCK);
  const std::string value =
      limit.rlim_cur == RLIM_INFINITY ? "unlimited" : bytes_text(limit.rlim_cur);
  const bool matters = !names_in("/sys/class/infiniband").empty();
  if (limit.rlim_cur == RLIM_INFINITY || !matters)
    return {{Level::kOk, "locked memory", value, ""}};
  return {{Level::kWarn, "locked memory", value, "RDMA pins memory: ulimit -l unlimited"}};
}

}  // namespace gradbus
