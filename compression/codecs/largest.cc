#include "compression/codecs/largest.h"

#include <algorithm>
#include <array>

#include "common/check.h"
#include "compression/codecs/compensated_unit.h"

namespace gradbus {

// ---- radix selection ----------------------------------------------------------------------------

namespace {

struct Digit {
  uint32_t shift;
  uint32_t bits;
};
// A wide first digit leaves next to nothing to the passes after it, but costs 20 us to clear and to
// search.
constexpr Digit kNarrow[] = {{20, 11}, {10, 10}, {0, 10}};
constexpr Digit kWide[] = {{16, 15}, {8, 8}, {0, 8}};
constexpr size_t kWideFrom = size_t{1} << 16;

}  // namespace

Bins make_bins(size_t count_max) {
  return Bins(size_t{1} << (count_max < kWideFrom ? kNarrow : kWide)[0].bits);
}

// After each digit `key` has those found, and k is the rank among the elements that share them.
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
    for (; bins[bin] < k; --bin) k -= bins[bin];
    key |= bin << digit.shift;
  }
  return key;
}

// ---- candidates ---------------------------------------------------------------------------------

namespace {

SelectBlock select_block_of(const EncodeInput& input, size_t first) {
  SelectBlock block{.decay = input.decay,
                    .count = std::min(kSelectElements, input.count() - first)};
  if (!input.gradient.empty()) block.gradient = &input.gradient[first];
  if (!input.residual.empty()) block.kept = &input.residual[first];
  return block;
}

}  // namespace

// A block is appended whenever there is room for some of it, so room is kept for all of it.
Candidates::Candidates(size_t capacity)
    : capacity_(capacity),
      indices_(new uint32_t[capacity + kSelectElements + kIndexSlack]),
      values_(new float[capacity + kSelectElements]) {}

void Candidates::append(const float* v, size_t count, size_t first, const uint64_t* masks) {
  const uint32_t* const indices = indices_.get() + size_;
  float* const values = values_.get() + size_;
  const auto base = static_cast<uint32_t>(first);
  const size_t found = put_indices(masks, count, base, indices_.get() + size_);
  for (size_t i = 0; i < found; ++i) values[i] = v[indices[i] - base];
  size_ += found;
}

size_t Candidates::give_up(const EncodeInput& input, size_t first, bool clear) const {
  size_t bad = first;
  while (magnitude_key(compensated_element(input, bad)) < kKeyInfinity) ++bad;
  if (clear) put_back(input.residual);
  if (!input.residual.empty()) restore_residual(input, first);
  return bad;
}

size_t Candidates::collect(const EncodeInput& input, uint32_t from, bool clear) {
  if (input.gradient.empty() && input.decay == 1 && !input.residual.empty() && !clear)
    return collect(compensated(input), from);  // v is there already
  size_ = 0;
  if (const size_t bad = look_first(input); bad != kAllFinite) return bad;
  std::array<uint64_t, kSelectElements / 64> masks;
  for (size_t first = 0; first < input.count(); first += kSelectElements) {
    const SelectBlock block = select_block_of(input, first);
    const size_t taken = take_block(block, from, masks.data());
    if (taken < block.count) return give_up(input, first + taken, clear);
    if (overflowed()) continue;
    const size_t before = size_;
    append(block.kept == nullptr ? block.gradient : block.kept, block.count, first, masks.data());
    for (size_t i = before; clear && i < size_; ++i) input.residual[indices_[i]] = 0;
  }
  return kAllFinite;
}

void Candidates::collect_some(std::span<const float> values, KeyRange keys, size_t enough) {
  std::array<uint64_t, kSelectElements / 64> masks;
  size_ = 0;
  for (size_t first = 0; first < values.size() && size_ < enough; first += kSelectElements) {
    const SelectBlock block = select_block_of({.gradient = values}, first);
    magnitude_masks(block.gradient, block.count, keys, masks.data());
    append(block.gradient, block.count, first, masks.data());
  }
}

void Candidates::put_back(std::span<float> cleared) const {
  for (size_t i = 0; i < size_; ++i) cleared[indices_[i]] = values_[i];
}

size_t Candidates::count_from(uint32_t key) const {
  return static_cast<size_t>(std::count_if(values_.get(), values_.get() + size_, [&](float value) {
    return magnitude_key(value) >= key;
  }));
}

// Whatever is kept, both are written and one of two counts goes on, for which it is would be a toss
// of a coin. Dropped ones gather in a small array, so that the lines they go back to are fetched
// side by side.
void Candidates::keep_from(uint32_t key, std::span<float> cleared) {
  constexpr size_t kChunk = 256;
  std::array<uint32_t, kChunk> places;
  std::array<float, kChunk> dropped;
  size_t kept = 0;
  for (size_t first = 0; first < size_; first += kChunk) {
    size_t drops = 0;
    for (size_t i = first; i < std::min(size_, first + kChunk); ++i) {
      const uint32_t index = indices_[i];
      const float value = values_[i];
      indices_[kept] = places[drops] = index;
      values_[kept] = dropped[drops] = value;
      const bool keeps = magnitude_key(value) >= key;
      kept += keeps ? 1 : 0;
      drops += keeps ? 0 : 1;
    }
    if (cleared.empty()) continue;
    for (size_t i = 0; i < drops; ++i) cleared[places[i]] = dropped[i];
  }
  size_ = kept;
}

void Candidates::keep_largest(size_t k, Bins& bins, std::span<float> cleared) {
  if (size_ <= k) return;
  const uint32_t last = kth_largest_key({values_.get(), size_}, k, bins);
  keep_from(last, cleared);
  if (size_ == k) return;
  size_t equals_left = k - count_from(last + 1);
  size_t kept = 0;
  for (size_t i = 0; i < size_; ++i) {
    if (magnitude_key(values_[i]) == last && equals_left == 0) {
      if (!cleared.empty()) cleared[indices_[i]] = values_[i];
      continue;
    }
    if (magnitude_key(values_[i]) == last) --equals_left;
    indices_[kept] = indices_[i];
    values_[kept++] = values_[i];
  }
  size_ = kept;
}

// From the back, where there is room.
void Candidates::add(const Candidates& others, size_t count) {
  GRADBUS_CHECK(size_ + count <= capacity_ && count <= others.size_);
  size_t own = size_;
  size_t other = count;
  size_ += count;
  for (size_t to = size_; other != 0;) {
    const bool take_own = own != 0 && indices_[own - 1] > others.indices_[other - 1];
    const Candidates& from = take_own ? *this : others;
    const size_t i = take_own ? --own : --other;
    indices_[--to] = from.indices_[i];
    values_[to] = from.values_[i];
  }
}

// ---- selection ----------------------------------------------------------------------------------

// Fills up to k with the first elements of that key; false where there are too few.
bool Largest::add_equals(std::span<const float> values, size_t k, uint32_t key) {
  if (found_.size() >= k) return true;
  const size_t missing = k - found_.size();
  equals_.collect_some(values, {key, key}, missing);
  if (equals_.size() < missing) return false;
  found_.add(equals_, missing);
  return true;
}

Selection Largest::exactly(const EncodeInput& input, size_t k, uint32_t guess, bool clear) {
  clear = clear && !input.residual.empty();
  guess = std::min(guess, kKeyInfinity - 1);
  const size_t bad = found_.collect(input, guess + 1, clear);
  if (bad != kAllFinite) return {.not_finite = bad};
  if (clear && !found_.overflowed() && found_.size() >= k) {
    found_.keep_largest(k, bins_, input.residual);
    Selection selection = found_.selection();
    selection.cleared = true;
    return selection;
  }
  if (clear) found_.put_back(input.residual);
  const std::span<const float> values = compensated_values(input);
  if (found_.overflowed() || !add_equals(values, k, guess)) {
    const uint32_t key = kth_largest_key(values, k, bins_);
    found_.collect(compensated(input), key + 1);
    add_equals(values, k, key);
  }
  found_.keep_largest(k, bins_);
  return found_.selection();
}

// Below `lowest` nothing was collected, but what was is enough then.
Selection Largest::about(const EncodeInput& input, size_t k, float threshold, uint32_t lowest) {
  constexpr int kLoweringsMax = 10;
  const size_t enough = (k * 4 + 4) / 5;
  lowest = std::min(lowest, kKeyInfinity);
  const size_t bad = found_.collect(input, lowest);
  if (bad != kAllFinite) return {.not_finite = bad};
  if (found_.overflowed() || found_.size() < enough) return exactly(compensated(input), k, lowest);
  uint32_t key = magnitude_key(threshold);
  for (int i = 0; i < kLoweringsMax && key > lowest && found_.count_from(key) < enough; ++i)
    key = magnitude_key(threshold *= 0.8F);
  if (key > lowest) found_.keep_from(key);
  found_.keep_largest(k, bins_);
  return found_.selection();
}

}  // namespace gradbus
