// A FIFO with reserved memory: pushing never allocates, and pushing into a full queue is our own
// bug. One thread owns it. Transports keep posts and events in it.
#pragma once

#include <bit>
#include <cstddef>
#include <utility>
#include <vector>

#include "common/check.h"

namespace gradbus {

template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity = 0) { reserve(capacity); }

  // Reserves room for `capacity` entries in total and keeps the queued ones. Only this function
  // allocates.
  void reserve(size_t capacity) {
    if (capacity <= slots_.size()) return;
    std::vector<T> larger(std::bit_ceil(capacity));
    for (size_t i = 0; i < size_; ++i) larger[i] = std::move((*this)[i]);
    slots_ = std::move(larger);
    head_ = 0;
  }

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }

  // Entry `i` counted from the front.
  T& operator[](size_t i) { return slots_[(head_ + i) & (slots_.size() - 1)]; }
  T& front() { return slots_[head_]; }

  void push(T value) {
    GRADBUS_CHECK(size_ < slots_.size());
    (*this)[size_++] = std::move(value);
  }
  void pop() {
    head_ = (head_ + 1) & (slots_.size() - 1);
    --size_;
  }

 private:
  std::vector<T> slots_;  // a power of two of them, or none
  size_t head_ = 0;
  size_t size_ = 0;
};

}  // namespace gradbus
