#include "common/segment.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/errors.h"
#include "common/system_error.h"

namespace gradbus {
namespace {

constexpr size_t kReserveStepBytes = 64u << 20;
constexpr size_t kHugePageBytes = 2u << 20;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::string whole_mib(size_t bytes) {
  return std::to_string((bytes + (1u << 20) - 1) >> 20) + " MiB";
}

Status no_memory(const std::string& name, size_t bytes, int cause) {
  return system_error("S201", "segment \"" + name + "\" needs " + whole_mib(bytes), cause,
                      cause == EFBIG ? "raise the agent's limit of file sizes: ulimit -f, "
                                       "LimitFSIZE= of a systemd unit"
                                     : "");
}

// The kernel's rule for shared memory is "advise".
bool huge_pages_on_advice() {
  const Fd rule(::open("/sys/kernel/mm/transparent_hugepage/shmem_enabled", O_RDONLY | O_CLOEXEC));
  char text[128] = {};
  return rule.valid() && read(rule.get(), text, sizeof(text) - 1) > 0 &&
         std::strstr(text, "[advise]") != nullptr;
}

// Every page now: a full machine is an error here and not a signal later. Returns an errno.
int reserve(int fd, size_t bytes, const std::function<void()>& breathe) {
  for (size_t at = 0; at < bytes; at += kReserveStepBytes) {
    const size_t step = std::min(kReserveStepBytes, bytes - at);
    const int cause = posix_fallocate(fd, static_cast<off_t>(at), static_cast<off_t>(step));
    if (cause != 0) return cause;
    if (breathe) breathe();
  }
  return 0;
}

// Under "advise" the kernel gives huge pages to memory that is touched through a mapping which
// asked for them, and not to posix_fallocate. What fails here is left to reserve(), which says why.
void populate_huge(int fd, size_t bytes, const std::function<void()>& breathe) {
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) return;
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return;
  auto* begin = static_cast<std::byte*>(address);
  bool advised = madvise(address, bytes, MADV_HUGEPAGE) == 0 && huge_pages_on_advice();
  for (size_t at = 0; at < bytes && advised; at += kReserveStepBytes) {
    const size_t step = std::min(kReserveStepBytes, bytes - at);
    advised = madvise(begin + at, step, MADV_POPULATE_WRITE) == 0;
    if (breathe) breathe();
  }
  munmap(address, bytes);
}

}  // namespace

Result<std::shared_ptr<Segment>> Segment::create(const std::string& name, size_t bytes,
                                                 const std::function<void()>& breathe,
                                                 HugePages pages) {
  const bool large = bytes >= kHugePageBytes;
  if (large && pages == HugePages::kReserved)
    if (auto segment = from_pool(name, bytes, breathe)) return segment;
  Fd fd(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return no_memory(name, bytes, errno);
  if (large && pages != HugePages::kNever) populate_huge(fd.get(), bytes, breathe);
  if (const int cause = reserve(fd.get(), bytes, breathe); cause != 0)
    return no_memory(name, bytes, cause);
  return seal(std::move(fd), name, bytes);
}

Result<std::shared_ptr<Segment>> Segment::seal(Fd fd, const std::string& name, size_t bytes) {
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return no_memory(name, bytes, errno);
  return map(std::move(fd), bytes, MAP_SHARED);
}

// Null when the pool has not enough pages (or the machine has no pool).
std::shared_ptr<Segment> Segment::from_pool(const std::string& name, size_t bytes,
                                            const std::function<void()>& breathe) {
  bytes = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  Fd fd(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | MFD_HUGE_2MB));
  if (!fd.valid() || reserve(fd.get(), bytes, breathe) != 0) return nullptr;
  auto segment = seal(std::move(fd), name, bytes);
  return segment.ok() ? segment.take() : nullptr;
}

Result<std::shared_ptr<Segment>> Segment::open(Fd fd, size_t bytes) {
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals)
    return error("S212", "the segment received is not sealed against resizing");
  struct stat info {};
  if (fstat(fd.get(), &info) != 0 || static_cast<size_t>(info.st_size) != bytes)
    return error("S212", "the segment has " + std::to_string(info.st_size) +
                             " bytes, announced were " + std::to_string(bytes));
  return map(std::move(fd), bytes, MAP_SHARED);
}

Result<std::shared_ptr<Segment>> Segment::anonymous(size_t bytes) {
  return map(Fd(), bytes, MAP_PRIVATE | MAP_ANONYMOUS);
}

Result<std::shared_ptr<Segment>> Segment::map(Fd fd, size_t bytes, int flags) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd.get(), 0);
  if (address == MAP_FAILED) return no_memory("mapping", bytes, errno);
  if (bytes >= kHugePageBytes) (void)madvise(address, bytes, MADV_HUGEPAGE);
  return std::shared_ptr<Segment>(
      new Segment(std::move(fd), {static_cast<std::byte*>(address), bytes}));
}

Segment::~Segment() { munmap(memory_.data(), memory_.size()); }

}  // namespace gradbus
