// The limits of the control groups that this process is in: what a container may use of its
// machine.
//
// Reads control groups of versions 1 and 2, with or without a namespace. A group and all groups
// above it that can be seen count; the tightest one decides. Without a group, a file or a number
// that makes sense there is no limit. Any thread may call it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>

namespace gradbus {

struct MemoryLimit {
  uint64_t bytes_max = 0;
  uint64_t bytes_used = 0;  // without file cache that the kernel can drop
  std::string file;         // that has the limit
  uint64_t left() const { return bytes_max > bytes_used ? bytes_max - bytes_used : 0; }
};

struct CgroupLimits {
  double cpus = std::numeric_limits<double>::infinity();  // processor time per time
  uint64_t memory_bytes_max = UINT64_MAX;                 // the lowest limit
  std::optional<MemoryLimit> memory;                      // the group with the least left
};

// The contents of a file; nothing if it cannot be read.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;

std::optional<std::string> read_whole_file(const std::string& path);
CgroupLimits read_cgroup_limits(const FileReader& read = read_whole_file);

// Cores that this thread may run on: a cpuset or taskset leaves fewer than the machine has.
// std::thread::hardware_concurrency() does not look at them (glibc 2.36).
uint32_t affinity_cores();

// Cores that threads of this process can use at the same time: its affinity (cpuset) and its share.
uint32_t usable_cores(const CgroupLimits& limits, uint32_t affinity);

}  // namespace gradbus
