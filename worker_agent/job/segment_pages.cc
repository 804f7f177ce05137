#include "worker_agent/job/segment_pages.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "common/errors.h"

namespace gradbus {
namespace {

constexpr uint64_t kStepBytes = 64u << 20;
constexpr long kHugeTlbFs = 0x958458f6;
constexpr uint64_t kHugePageBytes = 2u << 20;

}  // namespace

// The pool's pages have 2 MiB. Other memfds may have such pages too, but release small ones.
uint64_t page_bytes_of(const Segment& segment) {
  struct statfs info {};
  const bool pool = fstatfs(segment.fd(), &info) == 0 && info.f_type == kHugeTlbFs;
  return pool ? kHugePageBytes : kPageBytes;
}

bool give_back_pages(const Segment& segment, uint64_t offset, uint64_t bytes) {
  return fallocate(segment.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                   static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0;
}

Status restore_pages(const Segment& segment, uint64_t offset, uint64_t bytes,
                     const std::function<void()>& breathe) {
  for (uint64_t at = offset; at < offset + bytes; at += kStepBytes) {
    const uint64_t step = std::min(kStepBytes, offset + bytes - at);
    const int cause =
        posix_fallocate(segment.fd(), static_cast<off_t>(at), static_cast<off_t>(step));
    if (cause != 0)
      return error("S201", "the arena needs " + std::to_string((bytes + (1u << 20) - 1) >> 20) +
                               " MiB: " + std::strerror(cause));
    if (breathe) breathe();
  }
  return {};
}

}  // namespace gradbus
