// The k elements of largest magnitude of a unit, exactly: of equal magnitudes the lower index.
//
// One pass over the unit collects those above a threshold that was guessed to let a few more than k
// through, then the exact k are chosen among these. Where the guess was wrong (a unit that is
// periodic in the stride of the sample) a radix selection finds the threshold in three more passes.
// A threshold that many elements equal, as zero often is, costs a pass that ends at the k-th.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "compression/codec.h"
#include "compression/codecs/sparse_payload.h"
#include "compression/kernels/collect.h"
#include "compression/kernels/select.h"

namespace gradbus {

// Memory for the elements that pass: of a unit of `count_max`, from which at most k are wanted. A
// guess that lets through more than this is a wrong one.
constexpr size_t candidates_max(size_t count_max, size_t k) {
  const size_t wanted = 4 * k + 4096;
  return wanted < count_max ? wanted : count_max;
}

// Counters of radix selection: 8 KiB, for units of 65536 elements and more 128 KiB.
using Bins = std::vector<uint32_t>;
Bins make_bins(size_t count_max);

// The k-th largest key of `values`, 1 <= k <= their number.
uint32_t kth_largest_key(std::span<const float> values, size_t k, Bins& bins);

// Elements collected in order of their indices; memory that is never written takes no room.
class Candidates {
 public:
  explicit Candidates(size_t capacity);

  // Collects keys of keys.from and more and leaves v in the residual, if there is one, and 0 for
  // those of keys.clear_from and more. Returns the index of the first element that is not finite,
  // with the memories as they were, or kAllFinite. Of more than the capacity some are left out.
  size_t collect(const EncodeInput& input, CollectKeys keys);
  // Collects up to the block in which `enough` is reached.
  void collect_some(std::span<const float> values, KeyRange keys, size_t enough);
  bool overflowed() const { return size_ > capacity_; }
  // Elements whose magnitude is at least that of the key.
  size_t count_from(uint32_t key) const;
  // Where something was cleared all that is kept is cleared now, and what is dropped put back.
  void keep_from(uint32_t key, std::span<float> residual = {});
  // Of equal magnitudes the lower index.
  void keep_largest(size_t k, Bins& bins, std::span<float> residual = {});
  // All that was cleared.
  void put_back(std::span<float> residual);
  // Merges the first `count` of `others`, which fit. False, with nonsense here, when one of them is
  // here already.
  bool add(const Candidates& others, size_t count);

  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }
  Selection selection(bool cleared = false) const {
    return {
        .indices = {indices_.get(), size_}, .values = {values_.get(), size_}, .cleared = cleared};
  }

 private:
  bool clears() const { return clear_from_ <= kKeyMax; }
  // The first element that is not finite lies behind `first`: undoes what was written before. But
  // a finite gradient of which only a sum with its momentum is not is taken in, as by the memory.
  size_t give_up(const EncodeInput& input, size_t first);
  // Of those of that key.
  void drop_last(size_t drops, uint32_t key, std::span<float> residual);
  // Appends the elements of a block from `first` on whose bits are set.
  void append(const float* v, size_t count, size_t first, const uint64_t* masks);

  const size_t capacity_;
  size_t size_ = 0;
  uint32_t clear_from_ = kClearNone;  // what has this key and more is 0 in the residual
  std::unique_ptr<uint32_t[]> indices_;
  std::unique_ptr<float[]> values_;
};

// Selects with the help of a guess.
class Largest {
 public:
  Largest(size_t count_max, size_t k_max)
      : found_(candidates_max(count_max, k_max)), equals_(k_max), bins_(make_bins(count_max)) {}

  // The k-th largest key of a sample, to guess by.
  uint32_t kth_key(std::span<const float> sample, size_t k) {
    return kth_largest_key(sample, k, bins_);
  }
  size_t candidates() const { return found_.capacity(); }
  // Exactly k, 1 <= k <= count. With `clear_from`, a guess of the k-th largest key, what was
  // selected may already be 0 in the residual, as the selection says: touching it again, once it
  // has left the cache, costs 12 ns each, and now only what lies between the guess and the key.
  Selection exactly(const EncodeInput& input, size_t k, uint32_t guess,
                    uint32_t clear_from = kClearNone);
  // DGC's rule: those from `threshold` on, or from 0.8 of it, at most ten times over, until there
  // are 0.8 k; of more than k the k largest. `lowest`, at most the threshold's key, is a guess of
  // what lets through more than k; exactly k where it does not let through 0.8 k. With `clear` as
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
