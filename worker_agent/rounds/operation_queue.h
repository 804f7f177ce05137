// The events that a tensor's round has caused for its collective operations, first come, first
// served. The engine's job takes them one after the other in one loop (WorkerDataJob::run_queue).
// So an event that ends an operation does not start the next one inside it.
//
// Engine thread only. Nothing allocates after reserve().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data_plane/collective_operation.h"

namespace gradbus {

struct OperationEvent {
  enum class Kind : uint8_t {
    kBegin,       // a round begins; its input follows chunk by chunk, or is in blocks
    kBeginWhole,  // a round begins, and its whole input is there
    kChunk,       // the input of `chunk` is there
  };
  Kind kind = Kind::kBegin;
  CollectiveOperation* operation = nullptr;
  uint64_t round = 0;
  std::span<const uint64_t> block_bytes = {};  // lives until the operation has ended
  uint32_t chunk = 0;
};

class OperationQueue {
 public:
  // `events`: the most that are added until the queue is empty again.
  void reserve(size_t events) { events_.reserve(events); }

  void add(const OperationEvent& event) { events_.push_back(event); }
  bool empty() const { return next_ == events_.size(); }
  // Not when it is empty.
  OperationEvent take() {
    const OperationEvent event = events_[next_++];
    if (empty()) clear();
    return event;
  }
  void clear() { events_.clear(), next_ = 0; }

 private:
  std::vector<OperationEvent> events_;
  size_t next_ = 0;
};

}  // namespace gradbus
