// A piece of shared memory: a memfd that one process creates, fills and seals, and others map: an
// agent and its clients, two agents of one machine.
//
// Sealed SHRINK | GROW | SEAL: nobody can truncate it under the other side's feet (an access beyond
// the end would be a SIGBUS). Preallocated: when memory is short, creation fails, not a later
// store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/fd.h"
#include "common/status.h"

namespace gradbus {

// Where the pages of a large segment come from. Huge ones save a quarter of the time of a reduction
// out of cache (measured on AMD EPYC, 100 MiB: 18 ms and 13 ms).
enum class HugePages : uint8_t {
  kNever,
  kTransparent,  // where the kernel gives them to shared memory (shmem_enabled: advise or more)
  kReserved,     // from the pool of vm.nr_hugepages while it lasts, else as kTransparent
};

class Segment {
 public:
  // The creator: at least `bytes` zero bytes (whole pages) under `name` (shown in /proc/PID/maps).
  // S201 with the numbers when there is not enough memory. Zeroing goes at a few GB/s: `breathe` is
  // called every 64 MiB, for a caller with deadlines of its own.
  static Result<std::shared_ptr<Segment>> create(const std::string& name, size_t bytes,
                                                 const std::function<void()>& breathe = {},
                                                 HugePages pages = HugePages::kNever);
  // The others: maps a received descriptor. S212 unless it is sealed and exactly `bytes` long.
  static Result<std::shared_ptr<Segment>> open(Fd fd, size_t bytes);
  // A world of one needs no agent: private memory behind the same type.
  static Result<std::shared_ptr<Segment>> anonymous(size_t bytes);

  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  std::byte* at(size_t offset) const { return memory_.data() + offset; }
  std::span<std::byte> memory() const { return memory_; }
  size_t bytes() const { return memory_.size(); }
  int fd() const { return fd_.get(); }
  // When nobody else is to map it: the memory stays.
  void close_fd() { fd_.reset(); }

 private:
  Segment(Fd fd, std::span<std::byte> memory) : fd_(std::move(fd)), memory_(memory) {}
  static Result<std::shared_ptr<Segment>> seal(Fd fd, const std::string& name, size_t bytes);
  static std::shared_ptr<Segment> from_pool(const std::string& name, size_t bytes,
                                            const std::function<void()>& breathe);
  static Result<std::shared_ptr<Segment>> map(Fd fd, size_t bytes, int flags);

  Fd fd_;
  std::span<std::byte> memory_;
};

}  // namespace gradbus
