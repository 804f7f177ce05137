// The two passes of Adasum for one SIMD target (reduce_targets.h defines them). Included once per
// target by foreach_target.h, hence the toggled guard; plain pointers only, as in reduce_inl.h.
//
// The passes work on tiles. A tile of f16 or bf16 is widened to f32 on the stack, so the loops
// exist for f32 and f64 only. A tile whose length is no multiple of eight is padded with zeros.
// They change no lane: x + 0 * 0 is x, because no lane is ever -0.

#if defined(GRADBUS_COMMON_KERNELS_ADASUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADBUS_COMMON_KERNELS_ADASUM_INL_H_
#undef GRADBUS_COMMON_KERNELS_ADASUM_INL_H_
#else
#define GRADBUS_COMMON_KERNELS_ADASUM_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/dtype.h"
#include "common/kernels/elements_inl.h"
#include "common/kernels/reduce_targets.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using F64 = hn::ScalableTag<double>;
using F64Vec = hn::Vec<F64>;

constexpr size_t kF64Lanes = HWY_LANES(double);
constexpr size_t kVectors = kAdasumLanes / kF64Lanes;  // vectors for one element of each lane
constexpr size_t kTileElements = 512;                  // two tiles of f64 fit into any L1
constexpr size_t kTailElements = 16;                   // a multiple of eight and of all f32 vectors
static_assert(kVectors * kF64Lanes == kAdasumLanes && kTileElements % kTailElements == 0);

struct Tile {
  alignas(HWY_MAX_BYTES) std::byte bytes[kTileElements * sizeof(double)];
};

template <typename T>
HWY_INLINE F64Vec load_f64(const std::byte* from) {
  const hn::Rebind<T, F64> tag;
  if constexpr (sizeof(T) == sizeof(double)) return load_lanes(tag, from);
  if constexpr (sizeof(T) != sizeof(double)) return hn::PromoteTo(F64(), load_lanes(tag, from));
}

template <typename T>
HWY_INLINE void store_f64(F64Vec lanes, std::byte* to) {
  const hn::Rebind<T, F64> tag;
  if constexpr (sizeof(T) == sizeof(double)) store_lanes(tag, lanes, to);
  if constexpr (sizeof(T) != sizeof(double)) store_lanes(tag, hn::DemoteTo(tag, lanes), to);
}

// ---- tiles ------------------------------------------------------------------------------------

template <typename Half>
HWY_INLINE void widen(const std::byte* halves, size_t count, std::byte* tile) {
  for (size_t i = 0; i < count; i += HWY_LANES(float))
    Float<float>::store(Half::load(halves + i * Half::kBytes), tile + i * sizeof(float));
}

template <typename Half>
HWY_NOINLINE void widen_tile(const std::byte* halves, size_t count, std::byte* tile) {
  const size_t whole = count / kTailElements * kTailElements;
  widen<Half>(halves, whole, tile);
  if (whole == count) return;
  std::byte tail[kTailElements * Half::kBytes] = {};
  std::memcpy(tail, halves + whole * Half::kBytes, (count - whole) * Half::kBytes);
  widen<Half>(tail, kTailElements, tile + whole * sizeof(float));
}

template <typename Half>
HWY_NOINLINE void narrow_tile(const std::byte* tile, size_t count, std::byte* halves) {
  constexpr size_t kLanes = HWY_LANES(float);
  std::byte tail[kLanes * Half::kBytes];
  const size_t whole = count / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    Half::store(Float<float>::load(tile + i * sizeof(float)), halves + i * Half::kBytes);
  }
  if (whole == count) return;
  Half::store(Float<float>::load(tile + whole * sizeof(float)), tail);
  std::memcpy(halves + whole * Half::kBytes, tail, (count - whole) * Half::kBytes);
}

HWY_INLINE size_t width_of(DType dtype) {
  return dtype == DType::kF64 ? sizeof(double) : dtype == DType::kF32 ? sizeof(float) : 2;
}

HWY_INLINE size_t padded(size_t count) {
  return (count + kAdasumLanes - 1) / kAdasumLanes * kAdasumLanes;
}

// Returns `count` elements as f32 or f64, followed by zeros up to padded(count). The result is
// `from` itself or `tile`.
const std::byte* wide_elements(DType dtype, const std::byte* from, size_t count, Tile& tile) {
  if (dtype == DType::kF16) {
    widen_tile<F16>(from, count, tile.bytes);
  } else if (dtype == DType::kBF16) {
    widen_tile<BF16>(from, count, tile.bytes);
  } else if (count % kAdasumLanes == 0) {
    return from;
  } else {
    const size_t bytes = count * width_of(dtype);
    std::memcpy(tile.bytes, from, bytes);
    std::memset(tile.bytes + bytes, 0, padded(count) * width_of(dtype) - bytes);
  }
  return tile.bytes;
}

// ---- the passes -------------------------------------------------------------------------------

// The sums of `kCount` vectors of lanes. The type is nested because an array of vectors would stay
// in memory where the compiler does not unroll its loops (-O2).
template <typename T, size_t kCount>
struct Dots {
  HWY_INLINE Dots() {}  // a generated constructor is not compiled for this target (Arm)
  HWY_INLINE void load(const double* sums) {
    ab = hn::LoadU(F64(), sums);
    aa = hn::LoadU(F64(), sums + kAdasumLanes);
    bb = hn::LoadU(F64(), sums + 2 * kAdasumLanes);
    rest.load(sums + kF64Lanes);
  }
  HWY_INLINE void add(const std::byte* a, const std::byte* b) {
    const F64Vec x = load_f64<T>(a);
    const F64Vec y = load_f64<T>(b);
    ab = hn::Add(ab, hn::Mul(x, y));
    aa = hn::Add(aa, hn::Mul(x, x));
    bb = hn::Add(bb, hn::Mul(y, y));
    rest.add(a + kF64Lanes * sizeof(T), b + kF64Lanes * sizeof(T));
  }
  HWY_INLINE void store(double* sums) const {
    hn::StoreU(ab, F64(), sums);
    hn::StoreU(aa, F64(), sums + kAdasumLanes);
    hn::StoreU(bb, F64(), sums + 2 * kAdasumLanes);
    rest.store(sums + kF64Lanes);
  }

  F64Vec ab, aa, bb;
  Dots<T, kCount - 1> rest;
};

template <typename T>
struct Dots<T, 0> {
  HWY_INLINE void load(const double*) {}
  HWY_INLINE void add(const std::byte*, const std::byte*) {}
  HWY_INLINE void store(double*) const {}
};

template <typename T>
HWY_NOINLINE void add_dots(const std::byte* a, const std::byte* b, size_t count, double* sums) {
  Dots<T, kVectors> dots;
  dots.load(sums);
  for (size_t i = 0; i < count; i += kAdasumLanes) dots.add(a + i * sizeof(T), b + i * sizeof(T));
  dots.store(sums);
}

template <typename T>
HWY_NOINLINE void blend_elements(const std::byte* a, double a_factor, const std::byte* b,
                                 double b_factor, std::byte* target, size_t count) {
  const F64Vec a_factors = hn::Set(F64(), a_factor);
  const F64Vec b_factors = hn::Set(F64(), b_factor);
  const F64Vec nan = hn::Set(F64(), __builtin_nan(""));
  for (size_t i = 0; i < count; i += kF64Lanes) {
    const F64Vec x = hn::Mul(a_factors, load_f64<T>(a + i * sizeof(T)));
    const F64Vec y = hn::Mul(b_factors, load_f64<T>(b + i * sizeof(T)));
    const F64Vec sum = hn::Add(x, y);
    store_f64<T>(hn::IfThenElse(hn::IsNaN(sum), nan, sum), target + i * sizeof(T));
  }
}

void dots_on_target(DType dtype, const std::byte* a, const std::byte* b, size_t count,
                    double* sums) {
  Tile a_tile, b_tile;
  const size_t width = width_of(dtype);
  std::memset(sums, 0, 3 * kAdasumLanes * sizeof(double));
  for (size_t begin = 0; begin < count; begin += kTileElements) {
    const size_t left = count - begin;
    const size_t elements = left < kTileElements ? left : kTileElements;
    const std::byte* x = wide_elements(dtype, a + begin * width, elements, a_tile);
    const std::byte* y = wide_elements(dtype, b + begin * width, elements, b_tile);
    if (dtype == DType::kF64) add_dots<double>(x, y, padded(elements), sums);
    if (dtype != DType::kF64) add_dots<float>(x, y, padded(elements), sums);
  }
}

// Writes a tile of the result directly to `target` when it needs no narrowing and no padding.
void blend_tile(DType dtype, const std::byte* a, double a_factor, const std::byte* b,
                double b_factor, std::byte* target, size_t count) {
  Tile a_tile, b_tile, result;
  const bool half = dtype == DType::kF16 || dtype == DType::kBF16;
  const bool straight = !half && count % kAdasumLanes == 0;
  const std::byte* x = wide_elements(dtype, a, count, a_tile);
  const std::byte* y = wide_elements(dtype, b, count, b_tile);
  std::byte* to = straight ? target : result.bytes;
  if (dtype == DType::kF64) blend_elements<double>(x, a_factor, y, b_factor, to, padded(count));
  if (dtype != DType::kF64) blend_elements<float>(x, a_factor, y, b_factor, to, padded(count));
  if (dtype == DType::kF16) narrow_tile<F16>(to, count, target);
  if (dtype == DType::kBF16) narrow_tile<BF16>(to, count, target);
  if (!half && !straight) std::memcpy(target, to, count * width_of(dtype));
}

void blend_on_target(DType dtype, const std::byte* a, double a_factor, const std::byte* b,
                     double b_factor, std::byte* target, size_t count) {
  const size_t width = width_of(dtype);
  for (size_t begin = 0; begin < count; begin += kTileElements) {
    const size_t left = count - begin;
    const size_t elements = left < kTileElements ? left : kTileElements;
    const size_t at = begin * width;
    blend_tile(dtype, a + at, a_factor, b + at, b_factor, target + at, elements);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
