// A test double of libnccl, for tests only: communicators of one process, whose ranks exchange f32
// in memory of the host, and fail or hang as a test says. One at a time, one thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "worker_agent/device/nccl_library.h"

namespace gradbus {

class NcclDouble {
 public:
  NcclDouble();
  ~NcclDouble();
  NcclDouble(const NcclDouble&) = delete;
  NcclDouble& operator=(const NcclDouble&) = delete;

  const NcclLibrary& library() const { return library_; }

  int version = kNcclVersionMin;
  bool hangs = false;                       // whatever is started: nothing ends
  bool launches_slowly = false;             // collectives stay "in progress"
  NcclResult async = NcclResult::kSuccess;  // what every communicator says of itself
  NcclResult init_answer = NcclResult::kInProgress;
  int alive = 0;    // communicators
  int aborted = 0;  // of those that were
  int last_blocking = 1;

  // True when all ranks, or both ends, have called what this rank has called last, and it was done:
  // of what it has called with `memory` to write to, or to send.
  bool is_done(const void* memory) const;

 private:
  NcclLibrary library_;
};

}  // namespace gradbus
