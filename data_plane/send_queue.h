// The frames that wait for one peer. The most urgent frame is sent first, and no frame starves.
//
// A frame of priority p is placed as if it had come kFramesPerPriority * p frames later. So a
// step's urgent frames overtake its others, and frames of equal priority stay in their order. A
// frame waits for a bounded number of later ones, so nothing starves.
//
// Memory is reserved: pushing allocates nothing. One thread owns the queue.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/check.h"
#include "proto/frame.h"

namespace gradbus {

// Priorities of a tensor's frames; 0 is the most urgent.
struct SendOrder {
  uint32_t sums = 0;     // partial sums
  uint32_t results = 0;  // finished chunks

  uint32_t of(FrameKind kind) const { return kind == FrameKind::kGather ? results : sums; }
};

class SendQueue {
 public:
  // More than the frames of a step that wait for one peer: 4 GiB in chunks of 1 MiB.
  static constexpr uint64_t kFramesPerPriority = 4096;

  void reserve(size_t frames) { frames_.reserve(frames); }
  bool empty() const { return frames_.empty(); }
  size_t size() const { return frames_.size(); }
  // Whether a frame with a priority other than 0 has ever been here: then the order may matter.
  bool is_ordered() const { return ordered_; }

  void push(uint32_t token, uint32_t priority) {
    GRADBUS_CHECK(frames_.size() < frames_.capacity());
    ordered_ |= priority != 0;
    const uint64_t number = pushed_++;
    frames_.push_back({number + kFramesPerPriority * priority, number, token});
    std::ranges::push_heap(frames_, later);
  }
  uint32_t front() const { return frames_.front().token; }
  uint32_t pop() {
    std::ranges::pop_heap(frames_, later);
    const uint32_t token = frames_.back().token;
    frames_.pop_back();
    return token;
  }

 private:
  struct Frame {
    uint64_t turn = 0;
    uint64_t number = 0;  // distinct: frames of one turn stay in their order
    uint32_t token = 0;
  };
  static bool later(const Frame& a, const Frame& b) {
    return a.turn != b.turn ? a.turn > b.turn : a.number > b.number;
  }

  std::vector<Frame> frames_;  // a heap
  uint64_t pushed_ = 0;
  bool ordered_ = false;
};

}  // namespace gradbus
