// reduce() for one SIMD target. Included once per target by foreach_target.h (toggled guard). Plain
// pointers only: a std:: template or inline function that is first used here would be compiled for
// this target. The linker could keep that copy for the whole program.
//
// The results of a block of elements stay in four registers while all sources are combined in
// order. Then the block is written to every target. So each source is read once and each target is
// written once, in place or not. The bits are those of reduce_scalar().

#if defined(GRADBUS_COMMON_KERNELS_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADBUS_COMMON_KERNELS_REDUCE_INL_H_
#undef GRADBUS_COMMON_KERNELS_REDUCE_INL_H_
#else
#define GRADBUS_COMMON_KERNELS_REDUCE_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/dtype.h"
#include "common/kernels/elements_inl.h"
#include "common/kernels/operations_inl.h"
#include "common/kernels/reduce.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

struct Job {
  const std::byte* const* sources;
  size_t source_count;
  std::byte* const* targets;
  size_t target_count;
  size_t count;
  double prescale;   // floats: factor of the sources
  double postscale;  // floats: factor of the results
  Divide divide;     // integers; null means division by 1
  uint32_t divisor;  // for `divide`
};

template <typename Element>
HWY_INLINE hn::Vec<typename Element::Tag> factors(double factor) {
  return hn::Set(typename Element::Tag(), static_cast<typename Element::Lane>(factor));
}

// The factors, rounded to the lanes' type. A factor can become 1 by that; it is then skipped.
template <typename Element>
HWY_INLINE bool multiplies(double factor) {
  return Element::kFloat && static_cast<typename Element::Lane>(factor) != 1;
}

template <typename Element>
HWY_NOINLINE void divide_block(Block<Element>& result, const Job& job) {
  alignas(HWY_MAX_BYTES) std::byte bytes[Block<Element>::kBytes];
  result.store(bytes);
  job.divide(bytes, sizeof(bytes), job.divisor);
  result.load(bytes);
}

template <typename Element, typename Operation>
HWY_INLINE void finish(Block<Element>& result, const Job& job) {
  if constexpr (Element::kFloat) {
    if (multiplies<Element>(job.postscale)) result.scale(factors<Element>(job.postscale));
    if constexpr (Operation::kOneNan) result.one_nan();
  } else {
    if (job.divide != nullptr) divide_block(result, job);
  }
}

// ---- the loops --------------------------------------------------------------------------------

template <typename Element, bool kPrescale>
HWY_INLINE void load_source(Block<Element>& block, const std::byte* from, const Job& job) {
  block.load(from);
  if constexpr (kPrescale) block.scale(factors<Element>(job.prescale));
}

// Reduces all whole blocks and returns the number of elements done. From about eight vectors on,
// the hardware prefetcher does not follow, so each block prefetches the next one: 16 sources of 32
// MiB run at 50 instead of 35 GB/s. `job` is passed by value, because byte stores to targets could
// otherwise alias it (a fifth slower in cache).
template <typename Element, typename Operation, bool kPrescale>
size_t reduce_blocks(const Job job) {
  constexpr size_t kBytes = Block<Element>::kBytes;
  const size_t blocks = job.count / Block<Element>::kElements;
  for (size_t at = 0; at < blocks * kBytes; at += kBytes) {
    Block<Element> result;
    load_source<Element, kPrescale>(result, job.sources[0] + at, job);
    for (size_t s = 1; s < job.source_count; ++s) {
      const std::byte* const from = job.sources[s] + at;
      for (size_t line = 0; line < kBytes; line += 64) __builtin_prefetch(from + kBytes + line);
      Block<Element> next;
      load_source<Element, kPrescale>(next, from, job);
      result.template combine<Operation>(next);
    }
    finish<Element, Operation>(result, job);
    for (size_t t = 0; t < job.target_count; ++t) result.store(job.targets[t] + at);
  }
  return blocks * Block<Element>::kElements;
}

// The case of two ranks on a node, or a ring step in place: every pointer is in a register.
template <typename Element, typename Operation, bool kTwoTargets>
size_t reduce_pair(const Job job) {
  constexpr size_t kBytes = Block<Element>::kBytes;
  const size_t blocks = job.count / Block<Element>::kElements;
  const std::byte* const first = job.sources[0];
  const std::byte* const second = job.sources[1];
  std::byte* const near = job.targets[0];
  std::byte* const far = job.targets[kTwoTargets ? 1 : 0];
  for (size_t at = 0; at < blocks * kBytes; at += kBytes) {
    Block<Element> result, next;
    result.load(first + at);
    next.load(second + at);
    result.template combine<Operation>(next);
    finish<Element, Operation>(result, job);
    result.store(near + at);
    if (kTwoTargets) result.store(far + at);
  }
  return blocks * Block<Element>::kElements;
}

// Reduces the rest, less than a block, in a padded block.
template <typename Element, typename Operation>
void reduce_rest(const Job& job, size_t begin) {
  const size_t at = begin * Element::kBytes;
  const size_t bytes = (job.count - begin) * Element::kBytes;
  alignas(HWY_MAX_BYTES) std::byte padded[Block<Element>::kBytes] = {};
  Block<Element> result;
  for (size_t s = 0; s < job.source_count; ++s) {
    std::memcpy(padded, job.sources[s] + at, bytes);
    Block<Element> next;
    next.load(padded);
    if constexpr (Element::kFloat) {
      if (multiplies<Element>(job.prescale)) next.scale(factors<Element>(job.prescale));
    }
    if (s == 0) {
      result = next;
    } else {
      result.template combine<Operation>(next);
    }
  }
  finish<Element, Operation>(result, job);
  result.store(padded);
  for (size_t t = 0; t < job.target_count; ++t) std::memcpy(job.targets[t] + at, padded, bytes);
}

// Only sums have a special loop for pairs. The other operations are too rare for the extra code.
template <typename Element, typename Operation>
size_t reduce_whole_blocks(const Job& job) {
  if constexpr (Element::kFloat) {
    if (multiplies<Element>(job.prescale)) return reduce_blocks<Element, Operation, true>(job);
  }
  if constexpr (hwy::IsSame<Operation, Sum>()) {
    if (job.source_count == 2 && job.target_count == 1)
      return reduce_pair<Element, Operation, false>(job);
    if (job.source_count == 2 && job.target_count == 2)
      return reduce_pair<Element, Operation, true>(job);
  }
  return reduce_blocks<Element, Operation, false>(job);
}

template <typename Element, typename Operation>
HWY_NOINLINE void reduce_elements(const Job& job) {
  const size_t done = reduce_whole_blocks<Element, Operation>(job);
  if (done < job.count) reduce_rest<Element, Operation>(job, done);
}

// ---- which loop -------------------------------------------------------------------------------

// Sums and products of integers have the same bits with and without a sign.
template <typename Operation>
void reduce_numbers(DType dtype, const Job& job) {
  switch (dtype) {
    case DType::kF32: return reduce_elements<Float<float>, Operation>(job);
    case DType::kF64: return reduce_elements<Float<double>, Operation>(job);
    case DType::kF16: return reduce_elements<F16, Operation>(job);
    case DType::kBF16: return reduce_elements<BF16, Operation>(job);
    case DType::kI16:
    case DType::kU16: return reduce_elements<Integer<uint16_t>, Operation>(job);
    case DType::kI32:
    case DType::kU32: return reduce_elements<Integer<uint32_t>, Operation>(job);
    case DType::kI64:
    case DType::kU64: return reduce_elements<Integer<uint64_t>, Operation>(job);
    case DType::kU8:
    case DType::kI8: return reduce_elements<Integer<uint8_t>, Operation>(job);
    case DType::kBool: return;
  }
}

template <typename Operation>
void reduce_ordered(DType dtype, const Job& job) {
  switch (dtype) {
    case DType::kF32: return reduce_elements<Float<float>, Operation>(job);
    case DType::kF64: return reduce_elements<Float<double>, Operation>(job);
    case DType::kF16: return reduce_elements<F16, Operation>(job);
    case DType::kBF16: return reduce_elements<BF16, Operation>(job);
    case DType::kI32: return reduce_elements<Integer<int32_t>, Operation>(job);
    case DType::kI64: return reduce_elements<Integer<int64_t>, Operation>(job);
    case DType::kI8: return reduce_elements<Integer<int8_t>, Operation>(job);
    case DType::kI16: return reduce_elements<Integer<int16_t>, Operation>(job);
    case DType::kU16: return reduce_elements<Integer<uint16_t>, Operation>(job);
    case DType::kU32: return reduce_elements<Integer<uint32_t>, Operation>(job);
    case DType::kU64: return reduce_elements<Integer<uint64_t>, Operation>(job);
    case DType::kU8:
    case DType::kBool: return reduce_elements<Integer<uint8_t>, Operation>(job);
  }
}

// Bitwise operations do not depend on the element width, so these work on bytes.
template <typename Operation>
void reduce_bits(DType dtype, Job job) {
  switch (dtype) {
    case DType::kI16:
    case DType::kU16: job.count *= 2; break;
    case DType::kI32:
    case DType::kU32: job.count *= 4; break;
    case DType::kI64:
    case DType::kU64: job.count *= 8; break;
    default: break;
  }
  reduce_elements<Integer<uint8_t>, Operation>(job);
}

Divide division(DType dtype, uint32_t divisor) {
  if (divisor == 1) return nullptr;
  switch (dtype) {
    case DType::kI32: return divide_i32;
    case DType::kU32: return divide_u32;
    case DType::kI64: return divide_longest<int64_t>;
    case DType::kU64: return divide_longest<uint64_t>;
    case DType::kU8: return divide_short<uint8_t>;
    case DType::kI8: return divide_short<int8_t>;
    case DType::kI16: return divide_short<int16_t>;
    case DType::kU16: return divide_short<uint16_t>;
    default: return nullptr;
  }
}

// Replaces a NaN factor by one whose lower half is clear. The narrowing of bf16 requires that.
double plain_nan(double factor) { return factor == factor ? factor : __builtin_nan(""); }

HWY_NOINLINE void reduce_on_target(DType dtype, const Reduction& reduction,
                                   const std::byte* const* sources, size_t source_count,
                                   std::byte* const* targets, size_t target_count, size_t count) {
  const Job job = {.sources = sources,
                   .source_count = source_count,
                   .targets = targets,
                   .target_count = target_count,
                   .count = count,
                   .prescale = plain_nan(reduction.prescale),
                   .postscale = plain_nan(reduction.postscale / reduction.divisor),
                   .divide = division(dtype, reduction.divisor),
                   .divisor = reduction.divisor};
  switch (reduction.op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage: return reduce_numbers<Sum>(dtype, job);
    case ReduceOp::kProduct: return reduce_numbers<Product>(dtype, job);
    case ReduceOp::kMin: return reduce_ordered<Minimum>(dtype, job);
    case ReduceOp::kMax: return reduce_ordered<Maximum>(dtype, job);
    case ReduceOp::kBitAnd: return reduce_bits<BitAnd>(dtype, job);
    case ReduceOp::kBitOr: return reduce_bits<BitOr>(dtype, job);
    case ReduceOp::kNone:
    case ReduceOp::kAdasum: return;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
