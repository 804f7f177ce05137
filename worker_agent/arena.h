// The tensor arena of one job on this node: sealed segments that its local ranks map, filled front
// to back. Tensors are placed when they are registered and stay until the job ends.
//
// Conductor thread only; segments are shared with the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client_lib/shm/cell.h"
#include "common/segment.h"
#include "common/status.h"

namespace gradbus {

// How much shared memory this agent may hand out, over all jobs.
struct ShmQuota {
  uint64_t bytes_max = 0;
  uint64_t bytes_used = 0;
  std::function<void()> breathe{};  // called while a large segment is being reserved
  HugePages huge_pages = HugePages::kTransparent;
};

struct Placement {
  uint32_t segment = 0;
  uint64_t cell_offset = 0;
  uint64_t data_offset = 0;
  uint64_t data_stride = 0;
};

class Arena {
 public:
  Arena(std::string job, uint32_t local_size, uint32_t world_size, ShmQuota& quota);
  ~Arena();

  // The first segment, with the JobWord. S201 when the quota or the machine says no.
  Status open();
  // Makes room for tensors that will need `bytes` together, so that they share one segment.
  Status reserve(uint64_t bytes);
  Result<Placement> place(const CellShape& shape);
  uint64_t bytes_needed(const CellShape& shape) const;

  const std::vector<std::shared_ptr<Segment>>& segments() const { return segments_; }
  JobWord& job_word() const { return *reinterpret_cast<JobWord*>(segments_.front()->at(0)); }

 private:
  Status grow(uint64_t bytes);
  uint64_t areas(const CellShape& shape) const;
  uint64_t stride(const CellShape& shape) const;

  const std::string job_;
  const uint32_t local_size_;
  const uint32_t world_size_;
  ShmQuota& quota_;
  std::vector<std::shared_ptr<Segment>> segments_;
  uint64_t used_ = 0;  // of the last segment
};

}  // namespace gradbus
