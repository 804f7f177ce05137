// Adasum: the factors of a pair, the tree over many sources, and the scalar form of the two passes.
// The scalar form is the definition; the SIMD targets (adasum_inl.h) give the same bits.
#include "common/kernels/adasum.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/check.h"
#include "common/kernels/half.h"
#include "common/kernels/reduce_targets.h"

namespace gradbus {
namespace {

double element(DType dtype, const std::byte* vector, size_t i) {
  if (dtype == DType::kF64) {
    double value;
    std::memcpy(&value, vector + i * sizeof(value), sizeof(value));
    return value;
  }
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, vector + i * sizeof(value), sizeof(value));
    return double{value};
  }
  uint16_t half;
  std::memcpy(&half, vector + i * sizeof(half), sizeof(half));
  return double{dtype == DType::kF16 ? f32_from_f16(half) : f32_from_bf16(half)};
}

void set_element(DType dtype, std::byte* vector, size_t i, double value) {
  if (dtype == DType::kF64) {
    std::memcpy(vector + i * sizeof(value), &value, sizeof(value));
    return;
  }
  const auto single = static_cast<float>(value);
  if (dtype == DType::kF32) {
    std::memcpy(vector + i * sizeof(single), &single, sizeof(single));
    return;
  }
  const uint16_t half = dtype == DType::kF16 ? f16_from_f32(single) : bf16_from_f32(single);
  std::memcpy(vector + i * sizeof(half), &half, sizeof(half));
}

// Sums the lanes: adds the upper half to the lower half until one lane is left.
double sum_of_lanes(double* lanes) {
  for (size_t width = kAdasumLanes / 2; width > 0; width /= 2) {
    for (size_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

double factor(double dot, double squared_norm) {
  return squared_norm == 0 ? 1 : 1 - dot / (2 * squared_norm);
}

// The tree over sources[begin, end). A node is a source itself or a vector of the scratch memory.
// The left side is a full tree, so sources are paired as in rounds of neighbours. Seven sources,
// with 4 to the left, give (0 1)(2 3) | (4 5) 6.
class Tree {
 public:
  Tree(DType dtype, std::span<const std::byte* const> sources, size_t count, std::byte* scratch)
      : dtype_(dtype), sources_(sources), count_(count), scratch_(scratch) {}

  void reduce_to(std::byte* target) const { combine(0, sources_.size(), 0, target); }

 private:
  // The result of a node, at `depth` of the scratch memory. Its right side may use the deeper
  // vectors.
  const std::byte* node(size_t begin, size_t end, size_t depth) const {
    if (end - begin == 1) return sources_[begin];
    std::byte* const result = scratch_ + depth * count_ * dtype_bytes(dtype_);
    combine(begin, end, depth, result);
    return result;
  }

  void combine(size_t begin, size_t end, size_t depth, std::byte* target) const {
    const size_t middle = begin + std::bit_ceil(end - begin) / 2;
    const std::byte* const left = node(begin, middle, depth);
    const std::byte* const right = node(middle, end, depth + 1);
    adasum_pair(dtype_, left, right, target, count_);
  }

  DType dtype_;
  std::span<const std::byte* const> sources_;
  size_t count_;
  std::byte* scratch_;
};

}  // namespace

void adasum_dots_scalar(DType dtype, const std::byte* a, const std::byte* b, size_t count,
                        double* sums) {
  std::memset(sums, 0, 3 * kAdasumLanes * sizeof(double));
  for (size_t i = 0; i < count; ++i) {
    const double x = element(dtype, a, i);
    const double y = element(dtype, b, i);
    double* const lane = sums + i % kAdasumLanes;
    lane[0] += x * y;
    lane[kAdasumLanes] += x * x;
    lane[2 * kAdasumLanes] += y * y;
  }
}

void adasum_blend_scalar(DType dtype, const std::byte* a, double a_factor, const std::byte* b,
                         double b_factor, std::byte* target, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const double sum = a_factor * element(dtype, a, i) + b_factor * element(dtype, b, i);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    set_element(dtype, target, i, std::isnan(sum) ? nan : sum);
  }
}

void adasum_pair_on(const ReduceTarget& by, DType dtype, const std::byte* a, const std::byte* b,
                    std::byte* target, size_t count) {
  GRADBUS_CHECK(is_float(dtype));
  double sums[3 * kAdasumLanes];
  by.dots(dtype, a, b, count, sums);
  const double dot = sum_of_lanes(sums);
  const double a_factor = factor(dot, sum_of_lanes(sums + kAdasumLanes));
  const double b_factor = factor(dot, sum_of_lanes(sums + 2 * kAdasumLanes));
  by.blend(dtype, a, a_factor, b, b_factor, target, count);
}

void adasum_pair(DType dtype, const std::byte* a, const std::byte* b, std::byte* target,
                 size_t count) {
  adasum_pair_on(reduce_targets().front(), dtype, a, b, target, count);
}

size_t adasum_scratch_bytes(DType dtype, size_t source_count, size_t count) {
  if (source_count < 3) return 0;
  return static_cast<size_t>(std::bit_width(source_count) - 1) * count * dtype_bytes(dtype);
}

void adasum(DType dtype, std::span<const std::byte* const> sources, std::byte* target, size_t count,
            std::span<std::byte> scratch) {
  GRADBUS_CHECK(is_float(dtype) && !sources.empty());
  GRADBUS_CHECK(scratch.size() >= adasum_scratch_bytes(dtype, sources.size(), count));
  if (sources.size() == 1) {
    if (target != sources[0] && count > 0)
      std::memcpy(target, sources[0], count * dtype_bytes(dtype));
    return;
  }
  Tree(dtype, sources, count, scratch.data()).reduce_to(target);
}

}  // namespace gradbus
