// Selects exactly the k elements of largest magnitude of a partition. For equal magnitudes the
// lower index wins.
//
// One pass over the partition collects the elements above a guessed threshold, which should let
// through slightly more than k. Then the exact k are chosen among these. A guess can be wrong, for
// example in a partition that is periodic in the stride of the sample. Then a radix selection finds
// the threshold in three more passes. If many elements equal the threshold, as zeros often do, an
// extra pass runs until it finds the k-th.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "compression/codec.h"
#include "compression/codecs/sparse_payload.h"
#include "compression/kernels/select/collect.h"
#include "compression/kernels/select/select.h"

namespace gradbus {

// The capacity for elements that pass the guess, in a partition of `count_max` elements with at
// most k wanted. A guess that lets through more is wrong.
constexpr size_t candidates_max(size_t count_max, size_t k) {
  const size_t wanted = 4 * k + 4096;
  return wanted < count_max ? wanted : count_max;
}

// Counters of the radix selection: 8 KiB, or 128 KiB for partitions of at least 65536 elements.
using Bins = std::vector<uint32_t>;
Bins make_bins(size_t count_max);

// Returns the k-th largest key of `values`, with 1 <= k <= values.size().
uint32_t kth_largest_key(std::span<const float> values, size_t k, Bins& bins);

// Elements collected in the order of their indices. Memory that is never written takes no room.
class Candidates {
 public:
  explicit Candidates(size_t capacity);

  // Collects keys from keys.from up. With a residual, leaves v in it, or 0 for keys from
  // keys.clear_from up. Returns kAllFinite, or the index of the first element that is not finite;
  // residual and momentum then have their old values. Elements beyond the capacity are not
  // collected.
  size_t collect(const EncodeInput& input, CollectKeys keys);
  // Collects up to the end of the block in which `enough` is reached.
  void collect_some(std::span<const float> values, KeyRange keys, size_t enough);
  bool overflowed() const { return size_ > capacity_; }
  // Counts the elements whose magnitude is at least that of the key.
  size_t count_from(uint32_t key) const;
  // Keeps the elements from `key` up. If elements were cleared, all kept ones are cleared now, and
  // dropped ones are restored.
  void keep_from(uint32_t key, std::span<float> residual = {});
  // For equal magnitudes the lower index wins.
  void keep_largest(size_t k, Bins& bins, std::span<float> residual = {});
  // Restores all elements that were cleared.
  void put_back(std::span<float> residual);
  // Merges the first `count` elements of `others`, which must fit. Returns false, with undefined
  // contents, when one of them is already here.
  bool add(const Candidates& others, size_t count);

  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }
  Selection selection(bool cleared = false) const {
    return {
        .indices = {indices_.get(), size_}, .values = {values_.get(), size_}, .cleared = cleared};
  }

 private:
  bool clears() const { return clear_from_ <= kKeyMax; }
  // Called when the first element that is not finite is behind `first`. Undoes all earlier writes.
  // But a finite gradient whose sum with the momentum is not finite is still accumulated, as the
  // error feedback does.
  size_t give_up(const EncodeInput& input, size_t first);
  // Drops the last `drops` elements with this key.
  void drop_last(size_t drops, uint32_t key, std::span<float> residual);
  // Appends the elements of a block whose bits are set; `first` is the index of the block.
  void append(const float* v, size_t count, size_t first, const uint64_t* masks);

  const size_t capacity_;
  size_t size_ = 0;
  // Elements with this key or a larger one are 0 in the residual.
  uint32_t clear_from_ = kClearNone;
  std::unique_ptr<uint32_t[]> indices_;
  std::unique_ptr<float[]> values_;
};

// Selects with the help of a guessed threshold.
class Largest {
 public:
  Largest(size_t count_max, size_t k_max)
      : found_(candidates_max(count_max, k_max)), equals_(k_max), bins_(make_bins(count_max)) {}

  // The k-th largest key of a sample, as a guess.
  uint32_t kth_key(std::span<const float> sample, size_t k) {
    return kth_largest_key(sample, k, bins_);
  }
  size_t candidates() const { return found_.capacity(); }
  // Selects exactly k elements, 1 <= k <= count. `clear_from` is a guess of the k-th largest key.
  // With it, selected elements may already be 0 in the residual, as the selection reports. Clearing
  // them later costs 12 ns each, because they have left the cache. With the guess, only elements
  // between the guess and the final key are touched again.
  Selection exactly(const EncodeInput& input, size_t k, uint32_t guess,
                    uint32_t clear_from = kClearNone);
  // DGC's rule: selects the elements from `threshold` up. While there are fewer than 0.8 k, the
  // threshold is multiplied by 0.8, at most ten times. Of more than k elements the k largest are
  // selected. `lowest`, at most the threshold's key, is a guess that lets through more than k. If
  // it lets through fewer than 0.8 k, the result is exactly k. `clear` works like `clear_from`
  // above.
  Selection about(const EncodeInput& input, size_t k, float threshold, uint32_t lowest,
                  bool clear = false);

 private:
  bool add_equals(std::span<const float> values, size_t k, uint32_t key);

  Candidates found_;
  Candidates equals_;
  Bins bins_;
};

}  // namespace gradbus
