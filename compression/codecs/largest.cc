#include "compression/codecs/largest.h"

#include <algorithm>
#include <array>

#include "common/check.h"
#include "compression/kernels/compensate.h"

namespace gradbus {

// ---- radix selection ----------------------------------------------------------------------------

namespace {

struct Digit {
  uint32_t shift;
  uint32_t bits;
};
constexpr Digit kDigits[] = {{20, 11}, {10, 10}, {0, 10}};
constexpr size_t kBins = 2048;
constexpr size_t kSpareBins = 16;  // for keys of another prefix: a store instead of a branch

using Bins = std::array<uint32_t, kBins + kSpareBins>;

// Counts the digit of the keys that share `prefix` above it. Two histograms, because equal keys in
// a row would each wait for the store of the one before.
Bins count_digit(std::span<const float> values, Digit digit, uint32_t prefix) {
  std::array<Bins, 2> bins = {};
  const uint32_t above = kKeyMax >> (digit.shift + digit.bits) << (digit.shift + digit.bits);
  const uint32_t low = (1u << digit.bits) - 1;
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t key = magnitude_key(values[i]);
    const uint32_t spare = kBins + static_cast<uint32_t>(i) % kSpareBins;
    ++bins[i % 2][(key & above) == prefix ? key >> digit.shift & low : spare];
  }
  for (size_t bin = 0; bin < kBins; ++bin) bins[0][bin] += bins[1][bin];
  return bins[0];
}

}  // namespace

uint32_t kth_largest_key(std::span<const float> values, size_t k) {
  GRADBUS_CHECK(k >= 1 && k <= values.size());
  uint32_t key = 0;
  for (const Digit digit : kDigits) {
    const Bins bins = count_digit(values, digit, key);
    uint32_t bin = (1u << digit.bits) - 1;
    for (; bins[bin] < k; --bin) k -= bins[bin];
    key |= bin << digit.shift;
  }
  return key;
}

// ---- candidates ---------------------------------------------------------------------------------

// A block is collected whenever there is room for some of it, so room is kept for all of it.
Candidates::Candidates(size_t capacity)
    : capacity_(capacity),
      indices_(new uint32_t[capacity + kBlockElements + kSelectSlack]),
      values_(new float[capacity + kBlockElements + kSelectSlack]) {}

bool Candidates::collect(const EncodeInput& input, KeyRange keys, size_t enough) {
  const size_t count = input.count();
  size_ = 0;
  for (size_t first = 0; first < count; first += kBlockElements) {
    const size_t block = std::min(kBlockElements, count - first);
    float* const to = input.residual.empty() ? nullptr : &input.residual[first];
    const float* v = compensate(input, first, block, to);
    const bool done = size_ >= enough || size_ > capacity_;
    if (done && input.residual.empty()) break;
    if (done) continue;
    size_ += select_magnitudes(v, block, static_cast<uint32_t>(first), keys, &indices_[size_],
                               &values_[size_]);
  }
  return size_ <= capacity_;
}

size_t Candidates::count_from(uint32_t key) const {
  return static_cast<size_t>(std::count_if(values_.get(), values_.get() + size_, [&](float value) {
    return magnitude_key(value) >= key;
  }));
}

void Candidates::keep_from(uint32_t key) {
  size_t kept = 0;
  for (size_t i = 0; i < size_; ++i) {
    const bool keep = magnitude_key(values_[i]) >= key;
    indices_[kept] = indices_[i];
    values_[kept] = values_[i];
    kept += keep ? 1 : 0;
  }
  size_ = kept;
}

void Candidates::keep_largest(size_t k) {
  if (size_ <= k) return;
  const uint32_t last = kth_largest_key({values_.get(), size_}, k);
  size_t equals_left = k - count_from(last + 1);
  size_t kept = 0;
  for (size_t i = 0; i < size_; ++i) {
    const uint32_t key = magnitude_key(values_[i]);
    const bool is_equal = key == last && equals_left != 0;
    indices_[kept] = indices_[i];
    values_[kept] = values_[i];
    kept += key > last || is_equal ? 1 : 0;
    equals_left -= is_equal ? 1 : 0;
  }
  size_ = kept;
}

// From the back, where there is room.
void Candidates::add(const Candidates& others, size_t count) {
  GRADBUS_CHECK(size_ + count <= capacity_ + kBlockElements && count <= others.size_);
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
bool Largest::add_equals(const EncodeInput& unit, size_t k, uint32_t key) {
  if (found_.size() >= k) return true;
  const size_t missing = k - found_.size();
  equals_.collect(unit, {key, key}, missing);
  if (equals_.size() < missing) return false;
  found_.add(equals_, missing);
  return true;
}

Selection Largest::exactly(const EncodeInput& input, size_t k, uint32_t guess) {
  guess = std::min(guess, kKeyInfinity - 1);  // so that what is not finite is among the first
  const bool fits = found_.collect(input, {guess + 1, kKeyMax});
  const EncodeInput unit = compensated(input);
  if (!fits || !add_equals(unit, k, guess)) {
    const uint32_t key = kth_largest_key(unit.gradient, k);
    found_.collect(unit, {key + 1, kKeyMax});
    add_equals(unit, k, key);
  }
  found_.keep_largest(k);
  return found_.selection();
}

// Below `lowest` nothing was collected, but what was is enough then.
Selection Largest::about(const EncodeInput& input, size_t k, float threshold, uint32_t lowest) {
  constexpr int kLoweringsMax = 10;
  const size_t enough = (k * 4 + 4) / 5;
  lowest = std::min(lowest, kKeyInfinity);
  if (!found_.collect(input, {lowest, kKeyMax}) || found_.size() < enough)
    return exactly(compensated(input), k, lowest);
  uint32_t key = std::min(magnitude_key(threshold), kKeyInfinity);
  for (int i = 0; i < kLoweringsMax && key > lowest && found_.count_from(key) < enough; ++i)
    key = magnitude_key(threshold *= 0.8F);
  if (key > lowest) found_.keep_from(key);
  found_.keep_largest(k);
  return found_.selection();
}

}  // namespace gradbus
