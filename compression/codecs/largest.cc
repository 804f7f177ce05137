#include "compression/codecs/largest.h"

#include <algorithm>
#include <array>

#include "common/check.h"
#include "compression/codecs/compensated_partition.h"
#include "compression/kernels/vector/compensate.h"

namespace gradbus {

// ---- radix selection ----------------------------------------------------------------------------

namespace {

struct Digit {
  uint32_t shift;
  uint32_t bits;
};
// A wide first digit leaves almost nothing to the later passes. But its bins cost 20 us to clear
// and to search.
constexpr Digit kNarrow[] = {{20, 11}, {10, 10}, {0, 10}};
constexpr Digit kWide[] = {{16, 15}, {8, 8}, {0, 8}};
constexpr size_t kWideFrom = size_t{1} << 16;

}  // namespace

Bins make_bins(size_t count_max) {
  return Bins(size_t{1} << (count_max < kWideFrom ? kNarrow : kWide)[0].bits);
}

// After each digit, `key` contains the digits found so far. k is then the rank among the elements
// with these digits.
uint32_t kth_largest_key(std::span<const float> values, size_t k, Bins& bins) {
  GRADBUS_CHECK(k >= 1 && k <= values.size());
  uint32_t key = 0;
  const bool wide = values.size() >= kWideFrom && bins.size() >> kWide[0].bits != 0;
  for (const Digit digit : wide ? kWide : kNarrow) {
    const uint32_t low = (1u << digit.bits) - 1;
    const uint32_t below = (1u << (digit.shift + digit.bits)) - 1;
    std::fill_n(bins.begin(), low + 1, 0);
    for_each_in_range(values.data(), values.size(), {key, key | below},
                      [&](size_t i) { ++bins[magnitude_key(values[i]) >> digit.shift & low]; });
    uint32_t bin = low;
    // Values may change meanwhile, so a later pass may find fewer.
    for (; bin > 0 && bins[bin] < k; --bin) k -= bins[bin];
    key |= bin << digit.shift;
  }
  return key;
}

// ---- candidates ---------------------------------------------------------------------------------

// A block is appended if there is room for any part of it, so there is spare room for a whole
// block.
Candidates::Candidates(size_t capacity)
    : capacity_(capacity),
      indices_(new uint32_t[capacity + kSelectElements + kIndexSlack]),
      values_(new float[capacity + kSelectElements + kCollectSlack]) {}

void Candidates::append(const float* v, size_t count, size_t first, const uint64_t* masks) {
  const uint32_t* const indices = indices_.get() + size_;
  float* const values = values_.get() + size_;
  const auto base = static_cast<uint32_t>(first);
  const size_t found = put_indices(masks, count, base, indices_.get() + size_);
  for (size_t i = 0; i < found; ++i) values[i] = v[indices[i] - base];
  size_ += found;
}

namespace {

size_t give_up_momentum(const EncodeInput& input, size_t first) {
  const size_t count = input.count();
  const size_t bad = first_not_finite(input.gradient.data(), count);
  if (bad < count) {
    undo_momentum(input.step, input.gradient.first(first), input.momentum, input.residual);
    return bad;
  }
  const std::span<float> rest = input.residual.subspan(first);
  accumulate_momentum(input.step, input.gradient.subspan(first), input.momentum.subspan(first),
                      rest);
  return std::min(first + first_not_finite(rest.data(), rest.size()), count - 1);
}

}  // namespace

size_t Candidates::give_up(const EncodeInput& input, size_t first) {
  put_back(input.residual);
  if (!input.momentum.empty()) return give_up_momentum(input, first);
  if (!input.residual.empty()) restore_residual(input, first);
  return next_not_finite(input, first);
}

size_t Candidates::collect(const EncodeInput& input, CollectKeys keys) {
  const bool has_v = input.gradient.empty() && input.decay == 1 && !input.residual.empty();
  if (has_v && keys.clear_from == kClearNone) return collect(compensated(input), keys);
  size_ = 0;
  clear_from_ = keys.clear_from;
  if (const size_t bad = look_first(input); bad != kAllFinite) return bad;
  bool few = false;
  for (size_t first = 0; first < input.count(); first += kSelectElements) {
    if (overflowed()) keys = {.from = kKeyMax + 1};
    CollectBlock block = collect_block_of(input, first);
    block.few = few;
    const Collected got = collect_block(block, keys, indices_.get() + size_, values_.get() + size_);
    size_ += got.found;
    few = got.found * 256 < kSelectElements;
    if (got.taken < block.of.count) return give_up(input, first + got.taken);
  }
  return kAllFinite;
}

void Candidates::collect_some(std::span<const float> values, KeyRange keys, size_t enough) {
  std::array<uint64_t, kSelectElements / 64> masks;
  size_ = 0;
  for (size_t first = 0; first < values.size() && size_ < enough; first += kSelectElements) {
    const size_t count = std::min(kSelectElements, values.size() - first);
    magnitude_masks(&values[first], count, keys, masks.data());
    append(&values[first], count, first, masks.data());
  }
}

void Candidates::put_back(std::span<float> residual) {
  if (!clears()) return;
  for_each_in_range(values_.get(), size_, {clear_from_, kKeyMax},
                    [&](size_t i) { residual[indices_[i]] = values_[i]; });
  clear_from_ = kClearNone;
}

size_t Candidates::count_from(uint32_t key) const {
  return static_cast<size_t>(std::count_if(values_.get(), values_.get() + size_, [&](float value) {
    return magnitude_key(value) >= key;
  }));
}

// Updates only the elements between `key` and the guessed key.
void Candidates::keep_from(uint32_t key, std::span<float> residual) {
  if (clears() && key != clear_from_) {
    const bool drops = key > clear_from_;
    const KeyRange between{std::min(key, clear_from_), std::max(key, clear_from_) - 1};
    for_each_in_range(values_.get(), size_, between,
                      [&](size_t i) { residual[indices_[i]] = drops ? values_[i] : 0; });
    clear_from_ = key;
  }
  size_ = keep_listed(key, size_, indices_.get(), values_.get());
}

void Candidates::keep_largest(size_t k, Bins& bins, std::span<float> residual) {
  const uint32_t last = size_ <= k ? 0 : kth_largest_key({values_.get(), size_}, k, bins);
  keep_from(last, residual);
  if (size_ > k) drop_last(size_ - k, last, residual);
}

void Candidates::drop_last(size_t drops, uint32_t key, std::span<float> residual) {
  size_t stays = 0;
  for_each_in_range(values_.get(), size_, {key, key}, [&](size_t) { ++stays; });
  stays -= drops;
  size_t seen = 0;
  size_t kept = 0;
  size_t from = 0;  // start of the elements that are not moved yet
  const auto move_up_to = [&](size_t end) {
    if (kept != from) std::copy(&indices_[from], &indices_[end], &indices_[kept]);
    if (kept != from) std::copy(&values_[from], &values_[end], &values_[kept]);
    kept += end - from;
    from = end;
  };
  for_each_in_range(values_.get(), size_, {key, key}, [&](size_t i) {
    if (seen++ < stays) return;
    if (clears()) residual[indices_[i]] = values_[i];
    move_up_to(i);
    from = i + 1;
  });
  move_up_to(size_);
  size_ = kept;
}

// Merges from the back, where there is room.
bool Candidates::add(const Candidates& others, size_t count) {
  GRADBUS_CHECK(size_ + count <= capacity_ && count <= others.size_);
  size_t own = size_;
  size_t other = count;
  size_ += count;
  for (size_t to = size_; other != 0;) {
    if (own != 0 && indices_[own - 1] == others.indices_[other - 1]) return false;
    const bool take_own = own != 0 && indices_[own - 1] > others.indices_[other - 1];
    const Candidates& from = take_own ? *this : others;
    const size_t i = take_own ? --own : --other;
    indices_[--to] = from.indices_[i];
    values_[to] = from.values_[i];
  }
  return true;
}

// ---- selection ----------------------------------------------------------------------------------

// Adds the first elements with this key until there are k. Returns false if there are too few, or
// if one of them was found before: without a residual the values may change between passes.
bool Largest::add_equals(std::span<const float> values, size_t k, uint32_t key) {
  if (found_.size() >= k) return true;
  const size_t missing = k - found_.size();
  equals_.collect_some(values, {key, key}, missing);
  return equals_.size() >= missing && found_.add(equals_, missing);
}

Selection Largest::exactly(const EncodeInput& input, size_t k, uint32_t guess,
                           uint32_t clear_from) {
  guess = std::min(guess, kKeyInfinity - 1);
  if (input.residual.empty()) clear_from = kClearNone;
  const size_t bad = found_.collect(input, {guess + 1, std::max(clear_from, guess + 1)});
  if (bad != kAllFinite) return {.not_finite = bad};
  if (clear_from != kClearNone && !found_.overflowed() && found_.size() >= k) {
    found_.keep_largest(k, bins_, input.residual);
    return found_.selection(true);
  }
  found_.put_back(input.residual);
  const std::span<const float> values = compensated_values(input);
  if (found_.overflowed() || !add_equals(values, k, guess)) {
    const uint32_t key = std::min(kth_largest_key(values, k, bins_), kKeyInfinity - 1);
    const size_t changed = found_.collect(compensated(input), {key + 1});
    if (changed != kAllFinite) return {.not_finite = changed};
    if (!add_equals(values, k, key)) return {.not_finite = 0};
  }
  found_.keep_largest(k, bins_);
  return found_.selection();
}

// Nothing below `lowest` was collected, but the collected elements are enough then.
Selection Largest::about(const EncodeInput& input, size_t k, float threshold, uint32_t lowest,
                         bool clear) {
  constexpr int kLoweringsMax = 10;
  const size_t enough = (k * 4 + 4) / 5;
  lowest = std::min(lowest, kKeyInfinity);
  // If v is already in the residual, nothing else is written there.
  clear = clear && !input.residual.empty() && !(input.gradient.empty() && input.decay == 1);
  uint32_t key = magnitude_key(threshold);
  const size_t bad = found_.collect(input, {lowest, clear ? std::max(key, lowest) : kClearNone});
  if (bad != kAllFinite) return {.not_finite = bad};
  if (found_.overflowed() || found_.size() < enough) {
    found_.put_back(input.residual);
    return exactly(compensated(input), k, lowest);
  }
  for (int i = 0; i < kLoweringsMax && key > lowest && found_.count_from(key) < enough; ++i)
    key = magnitude_key(threshold *= 0.8F);
  if (key > lowest) found_.keep_from(key, input.residual);
  found_.keep_largest(k, bins_, input.residual);
  // The elements of the sample reach its threshold, unless the values have changed.
  if (found_.size() == 0) return {.not_finite = 0};
  return found_.selection(clear);
}

}  // namespace gradbus
