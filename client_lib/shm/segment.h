// A piece of shared memory: a memfd that the agent creates, fills and seals, and a client maps.
//
// Sealed SHRINK | GROW | SEAL: nobody can truncate it under the other side's feet (an access beyond
// the end would be a SIGBUS). Preallocated: when memory is short, creation fails, not a later
// store.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/fd.h"
#include "common/status.h"

namespace gradbus {

class Segment {
 public:
  // Agent: `bytes` zero bytes under `name` (shown in /proc/PID/maps). S201 with the numbers when
  // there is not enough memory.
  // Zeroing goes at a few GB/s: `breathe` is called every 64 MiB, for a caller with deadlines of
  // its own.
  static Result<std::shared_ptr<Segment>> create(const std::string& name, size_t bytes,
                                                 const std::function<void()>& breathe = {});
  // Client: maps a received descriptor. S212 unless it is sealed and exactly `bytes` long.
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

 private:
  Segment(Fd fd, std::span<std::byte> memory) : fd_(std::move(fd)), memory_(memory) {}
  static Result<std::shared_ptr<Segment>> map(Fd fd, size_t bytes, int flags);

  Fd fd_;
  std::span<std::byte> memory_;
};

}  // namespace gradbus
