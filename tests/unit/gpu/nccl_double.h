// A test double of libnccl: communicators of one process. Their ranks exchange f32 in host memory,
// and fail or hang as a test requests. One operation at a time, one thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "worker_agent/gpu/nccl_library.h"

namespace gradbus {

class NcclDouble {
 public:
  NcclDouble();
  ~NcclDouble();
  NcclDouble(const NcclDouble&) = delete;
  NcclDouble& operator=(const NcclDouble&) = delete;

  const NcclLibrary& library() const { return library_; }

  int version = kNcclVersionMin;
  bool hangs = false;                       // operations are started but never end
  bool launches_slowly = false;             // collectives stay "in progress"
  NcclResult async = NcclResult::kSuccess;  // the asynchronous state of every communicator
  NcclResult init_answer = NcclResult::kInProgress;
  int alive = 0;    // number of communicators
  int aborted = 0;  // number of communicators that were aborted
  int last_blocking = 1;

  // True when the operation that this rank called last with `memory` is done. All ranks, or both
  // ends, must have called it. `memory` is the target, or the source of a send.
  bool is_done(const void* memory) const;

 private:
  NcclLibrary library_;
};

}  // namespace gradbus
