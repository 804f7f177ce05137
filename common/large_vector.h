// Arrays of a gradient's size, on huge pages where the kernel gives them to those who ask: the
// prefetcher stops at the end of every page, and walks through page tables are two deep in a
// virtual machine. A codec that passes once over 128 MiB is 3 to 10 % faster so (Xeon, quiet).
//
// They begin as zeros that nobody has written: what a model's memories take is found page by page
// as rounds come to it. Cleared by the thread that makes them, 1 GB takes a second where a
// hypervisor looks for its pages, and an agent that is silent for a second may count as lost.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace gradbus {

// `size` values that begin as zeros, at a multiple of 64 bytes; the length stays. Throws
// std::bad_alloc.
template <typename T>
class LargeVector {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  using value_type = T;

  LargeVector() = default;
  explicit LargeVector(size_t size) {
    if (size == 0) return;
    if (size > SIZE_MAX / 2 / sizeof(T)) throw std::bad_array_new_length();
    const size_t bytes = size * sizeof(T);
    const size_t alignment = bytes >= kHugePage ? kHugePage : 64;
    block_.reset(std::calloc(bytes + alignment, 1));  // large ones: pages as the kernel gives them
    if (block_ == nullptr) throw std::bad_alloc();
    void* values = block_.get();
    size_t room = bytes + alignment;
    std::align(alignment, bytes, values, room);
    if (bytes >= kHugePage) (void)madvise(values, bytes, MADV_HUGEPAGE);  // refused: small pages
    values_ = {static_cast<T*>(values), size};
  }
  LargeVector(LargeVector&& other) noexcept
      : block_(std::move(other.block_)), values_(std::exchange(other.values_, {})) {}
  LargeVector& operator=(LargeVector&& other) noexcept {
    block_ = std::move(other.block_);
    values_ = std::exchange(other.values_, {});
    return *this;
  }

  T* data() { return values_.data(); }
  const T* data() const { return values_.data(); }
  size_t size() const { return values_.size(); }
  bool empty() const { return values_.empty(); }
  T* begin() { return data(); }
  T* end() { return data() + size(); }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size(); }
  T& operator[](size_t at) { return values_[at]; }
  const T& operator[](size_t at) const { return values_[at]; }

 private:
  static constexpr size_t kHugePage = size_t{2} << 20;
  struct Free {
    void operator()(void* block) const { std::free(block); }
  };

  std::unique_ptr<void, Free> block_;
  std::span<T> values_;
};

}  // namespace gradbus
