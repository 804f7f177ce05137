// The tensor arena of one job on this node: sealed segments that its local ranks map. Tensors are
// placed when they are registered. The memory of a tensor that every rank has unregistered is free
// for later ones: it reads as zeros then, as new memory does.
//
// Whole pages of free memory go back to the system and to the quota, and are reserved anew before
// they are used again, so a full machine is an error of the registration. Segments stay mapped,
// because clients know them by number.
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

#include "client_lib/shm/cell.h"
#include "common/segment.h"
#include "common/status.h"
#include "worker_agent/extents.h"

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
  // Makes room for these tensors together, so that new ones share one segment.
  Status reserve(std::span<const CellShape> shapes);
  Result<Placement> place(const CellShape& shape);
  // Nobody uses what place() has returned for this shape any more: no rank, no transport, no GPU.
  void free(const Placement& placement, const CellShape& shape);
  // UINT64_MAX when it does not fit 64 bits: no quota allows that.
  uint64_t bytes_needed(const CellShape& shape) const;
  // From now on pages stay where they are: a network card or a GPU has pinned them.
  void keep_pages() { keeps_pages_ = true; }

  const std::vector<std::shared_ptr<Segment>>& segments() const { return segments_; }
  JobWord& job_word() const { return *reinterpret_cast<JobWord*>(segments_.front()->at(0)); }
  uint64_t bytes_free() const;  // of all segments, with or without pages

 private:
  struct Memory {   // of one segment
    Extents free;   // of no tensor
    Extents holes;  // pages that were given back: a part of `free`
    Extents dirty;  // was used and was not cleared since: a part of `free`
  };
  struct Found {
    size_t segment = 0;
    Extents::Extent extent;
  };
  template <typename Segments>
  static std::optional<Found> find(const Segments& segments, uint64_t bytes);
  Status grow(uint64_t bytes);
  uint64_t quota_left() const;
  Status refuse(uint64_t bytes) const;
  Status make_usable(size_t index, Extents::Extent extent);
  void give_back_pages(size_t index, Extents::Extent whole, Extents::Extent freed);
  uint64_t areas(const CellShape& shape) const;
  uint64_t stride(const CellShape& shape) const;

  const std::string job_;
  const uint32_t local_size_;
  const uint32_t world_size_;
  ShmQuota& quota_;
  std::vector<std::shared_ptr<Segment>> segments_;
  std::vector<Memory> memory_;  // by segment
  bool keeps_pages_ = false;
};

}  // namespace gradbus
