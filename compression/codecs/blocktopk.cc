#include "compression/codecs/blocktopk.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "common/check.h"
#include "compression/kernels/quantize/narrow.h"
#include "compression/kernels/vector/sums.h"
#include "compression/payload.h"

namespace gradbus {
namespace {

// The sum of a finite block can overflow f32. Inf then stands for a large norm.
float norm_of_sum(double sum) {
  if (!std::isfinite(sum)) return std::numeric_limits<float>::quiet_NaN();
  if (sum > std::numeric_limits<float>::max()) return std::numeric_limits<float>::infinity();
  return static_cast<float>(sum);
}

size_t chosen_of(size_t blocks, double ratio) {
  const auto nearest = static_cast<size_t>(std::llround(ratio * static_cast<double>(blocks)));
  return std::min(std::max<size_t>(nearest, 1), blocks);
}

}  // namespace

BlockTopK::BlockTopK(size_t count, size_t block, double ratio, DType values)
    : count_(count),
      block_(std::min(block, std::max<size_t>(count, 1))),
      blocks_((count + block_ - 1) / block_),
      sent_blocks_(chosen_of(blocks_, ratio)),
      values_(values),
      order_(blocks_) {}

size_t BlockTopK::vector_elements(uint32_t round) const {
  return round == 0 ? blocks_ : sent_blocks_ * block_;
}

size_t BlockTopK::block_end(size_t block) const { return std::min((block + 1) * block_, count_); }

// Calls work(first, count) for pieces of a block that are short enough for compensate().
template <typename Work>
void BlockTopK::for_each_piece(size_t block, Work work) {
  const size_t end = block_end(block);
  for (size_t first = block * block_; first < end; first += kBlockElements)
    work(first, std::min(kBlockElements, end - first));
}

float BlockTopK::norm(const EncodeInput& input, size_t block) {
  double sum = 0;
  for_each_piece(block, [&](size_t first, size_t count) {
    const float* gradient = input.gradient.empty() ? nullptr : &input.gradient[first];
    sum += input.residual.empty()
               ? sum_magnitudes(gradient, count)
               : sum_magnitudes(gradient, &input.residual[first], input.decay, count);
  });
  return norm_of_sum(sum);
}

void BlockTopK::choose(std::span<const float> norms) {
  GRADBUS_CHECK(norms.size() == blocks_);
  const auto before = [&](uint32_t a, uint32_t b) {
    const bool a_nan = std::isnan(norms[a]);
    const bool b_nan = std::isnan(norms[b]);
    if (a_nan != b_nan) return a_nan;
    if (!a_nan && norms[a] != norms[b]) return norms[a] > norms[b];
    return a < b;
  };
  finite_ = std::none_of(norms.begin(), norms.end(), [](float norm) { return std::isnan(norm); });
  std::iota(order_.begin(), order_.end(), 0u);
  const auto end = order_.begin() + static_cast<ptrdiff_t>(sent_blocks_);
  std::nth_element(order_.begin(), end, order_.end(), before);
  std::sort(order_.begin(), end);
}

std::byte* BlockTopK::place(std::byte* vector, size_t i) const {
  return vector + i * dtype_bytes(values_);
}

void BlockTopK::write_block(const EncodeInput& input, size_t block, std::byte* to) {
  const size_t elements = block_end(block) - block * block_;
  for_each_piece(block, [&](size_t first, size_t count) {
    const float* v = compensate(input, first, count, scratch_.data());
    narrow(values_, v, count, place(to, first - block * block_), nullptr);
  });
  std::fill(place(to, elements), place(to, block_), std::byte{0});
}

void BlockTopK::project(uint32_t round, const EncodeInput& input, uint64_t,
                        std::span<const std::byte> sum_before, std::span<std::byte> vector) {
  GRADBUS_CHECK(input.count() == count_ &&
                vector.size() == vector_elements(round) * dtype_bytes(dtype(round)));
  if (round == 0) {
    for (size_t block = 0; block < blocks_; ++block)
      store_field(&vector[block * sizeof(float)], norm(input, block));
    return;
  }
  choose({reinterpret_cast<const float*>(sum_before.data()), sum_before.size() / sizeof(float)});
  for (size_t i = 0; i < sent_blocks_; ++i)
    write_block(input, order_[i], place(vector.data(), i * block_));
}

void BlockTopK::finish_sent(const EncodeInput& input, size_t block, const std::byte* sum,
                            float scale, std::span<float> values) {
  for_each_piece(block, [&](size_t first, size_t count) {
    if (finite_ && !input.residual.empty()) {
      const float* v = compensate(input, first, count, scratch_.data());
      narrow(values_, v, count, sent_.data(), input.residual.data() + first);
    }
    const size_t offset = (first - block * block_) * dtype_bytes(values_);
    widen(values_, sum + offset, count, scale, values.data() + first, false);
  });
}

void BlockTopK::finish_kept(const EncodeInput& input, size_t block, std::span<float> values) {
  for_each_piece(block, [&](size_t first, size_t count) {
    if (finite_ && !input.residual.empty())
      compensate_ahead(input, first, count, input.residual.data() + first);
    std::fill_n(values.data() + first, count, 0.0F);
  });
}

void BlockTopK::finish(const EncodeInput& input, uint64_t, uint32_t, std::span<const std::byte> sum,
                       float scale, std::span<float> values) {
  GRADBUS_CHECK(values.size() == count_ && sum.size() == vector_elements(1) * dtype_bytes(values_));
  size_t sent = 0;
  for (size_t block = 0; block < blocks_; ++block) {
    if (sent < sent_blocks_ && order_[sent] == block) {
      finish_sent(input, block, sum.data() + sent * block_ * dtype_bytes(values_), scale, values);
      ++sent;
    } else {
      finish_kept(input, block, values);
    }
  }
}

void BlockTopK::clear_sent(std::span<float> values) const {
  for (size_t i = 0; i < sent_blocks_ && finite_; ++i) {
    const size_t first = order_[i] * block_;
    std::ranges::fill(values.subspan(first, block_end(order_[i]) - first), 0.0F);
  }
}

}  // namespace gradbus
