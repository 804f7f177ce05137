// The tensor arena of one job on this node: sealed segments that its local ranks map. Tensors are
// placed at their registration. When every rank has unregistered a tensor, its memory is free for
// later ones. It then reads as zeros, like new memory.
//
// Whole pages of free memory return to the system and to the quota. They are reserved again before
// they are reused, so a full machine is an error of the registration. Segments stay mapped, because
// clients know them by number.
//
// Conductor thread only; segments are shared with the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/cgroup.h"
#include "common/segment.h"
#include "common/status.h"
#include "shared_memory/local_reduction.h"
#include "worker_agent/job/extents.h"

namespace gradbus {

// How much shared memory this agent may use for all jobs.
struct ShmQuota {
  uint64_t bytes_max = 0;
  uint64_t bytes_used = 0;
  std::function<void()> breathe{};  // called while a large segment is being reserved
  HugePages huge_pages = HugePages::kTransparent;
  // The limit of this process's container, asked each time; null: none.
  std::function<std::optional<MemoryLimit>()> container{};
};

// Whether the container's memory holds this much more for that job. S203 with the numbers else: the
// kernel would end a process without a word.
Status fits_container(const ShmQuota& quota, const std::string& job, uint64_t bytes);

struct ArenaSlot {
  uint32_t segment = 0;
  uint64_t local_reduction_offset = 0;
  uint64_t data_offset = 0;
  uint64_t data_stride = 0;
};

class Arena {
 public:
  Arena(std::string job, uint32_t local_size, uint32_t world_size, ShmQuota& quota);
  ~Arena();

  // Creates the first segment, with the JobWord. S201 when the quota or the machine does not allow
  // it.
  Status open();
  // Reserves room for these tensors together, so that new ones share one segment.
  Status reserve(std::span<const LocalReductionShape> shapes);
  Result<ArenaSlot> place(const LocalReductionShape& shape);
  // The result of place() for this shape is not used any more: by no rank, transport or GPU.
  void free(const ArenaSlot& slot, const LocalReductionShape& shape);
  // UINT64_MAX when it does not fit 64 bits: no quota allows that.
  uint64_t bytes_needed(const LocalReductionShape& shape) const;
  // From now on pages are not released, because a network card or a GPU has pinned them.
  void keep_pages() { keeps_pages_ = true; }

  const std::vector<std::shared_ptr<Segment>>& segments() const { return segments_; }
  JobWord& job_word() const { return *reinterpret_cast<JobWord*>(segments_.front()->at(0)); }
  uint64_t bytes_free() const;  // of all segments, with or without pages

 private:
  struct Memory {   // of one segment
    Extents free;   // not used by a tensor
    Extents holes;  // released pages: a part of `free`
    Extents dirty;  // used and not cleared since: a part of `free`
  };
  struct Found {
    size_t segment = 0;
    Extents::Extent extent;
  };
  template <typename Segments>
  static std::optional<Found> find(const Segments& segments, uint64_t bytes);
  Status grow(uint64_t bytes);
  uint64_t comfortable(uint64_t bytes) const;
  uint64_t quota_left() const;
  Status refuse(uint64_t bytes) const;
  Status make_usable(size_t index, Extents::Extent extent);
  void give_back_pages(size_t index, Extents::Extent whole, Extents::Extent freed);
  uint64_t rank_buffers(const LocalReductionShape& shape) const;
  uint64_t stride(const LocalReductionShape& shape) const;

  const std::string job_;
  const uint32_t local_size_;
  const uint32_t world_size_;
  ShmQuota& quota_;
  std::vector<std::shared_ptr<Segment>> segments_;
  std::vector<Memory> memory_;  // by segment
  bool keeps_pages_ = false;
};

}  // namespace gradbus
