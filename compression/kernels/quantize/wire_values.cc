#include "compression/kernels/quantize/wire_values.h"

#include <cstring>

#include "common/kernels/half.h"
#include "compression/payload.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/quantize/wire_values.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "common/kernels/half_inl.h"
#endif

// half_inl.h narrows and widens with instructions or for SSE4; other targets use the scalar form.
// They are not disabled, because all files must have the same targets: the index into the tables of
// targets is an inline function, of which the linker keeps one.
#undef GRADBUS_SCALAR_HALVES
#if HWY_TARGET & \
    (HWY_SCALAR | HWY_EMU128 | HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define GRADBUS_SCALAR_HALVES 1
#else
#define GRADBUS_SCALAR_HALVES 0
#endif

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace {

#if GRADBUS_SCALAR_HALVES
size_t StoreVectors(WireType, const float*, size_t, std::byte*) { return 0; }
size_t LoadVectors(WireType, const std::byte*, size_t, float, float*) { return 0; }
#else
// Converts any f32 to bf16. A NaN keeps its upper bits and is made quiet, so no carry changes it to
// a number.
U16Vec NarrowBf16(F32Vec values) {
  const U32 d;
  const auto upper = hn::And(hn::BitCast(d, values), hn::Set(d, 0xffff0000));
  const auto quiet = hn::BitCast(F32(), hn::Or(upper, hn::Set(d, 0x400000)));
  return narrow_bf16_sum(hn::IfThenElse(hn::IsNaN(values), quiet, values));
}

// Converts whole vectors and returns the number of elements.
size_t StoreVectors(WireType type, const float* from, size_t count, std::byte* to) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  if (type == WireType::kFp16) {
    for (; i + lanes <= count; i += lanes)
      store_halves(narrow_f16(hn::LoadU(d, from + i)), to + 2 * i);
  } else {
    for (; i + lanes <= count; i += lanes)
      store_halves(NarrowBf16(hn::LoadU(d, from + i)), to + 2 * i);
  }
  return i;
}

size_t LoadVectors(WireType type, const std::byte* from, size_t count, float scale, float* to) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  const auto factor = hn::Set(d, scale);
  size_t i = 0;
  if (type == WireType::kFp16) {
    for (; i + lanes <= count; i += lanes)
      hn::StoreU(hn::Mul(factor, widen_f16(load_halves(from + 2 * i))), d, to + i);
  } else {
    for (; i + lanes <= count; i += lanes)
      hn::StoreU(hn::Mul(factor, widen_bf16(load_halves(from + 2 * i))), d, to + i);
  }
  return i;
}
#endif

// Scales f32 values that are already in `to`.
void Scale(float scale, size_t count, float* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto factor = hn::Set(d, scale);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::Mul(factor, hn::LoadU(d, to + i)), d, to + i);
  for (; i < count; ++i) to[i] *= scale;
}

void StoreHalves(WireType type, const float* from, size_t count, std::byte* to) {
  const size_t done = StoreVectors(type, from, count, to);
  store_wire_values_scalar(type, from + done, count - done, to + 2 * done);
}

void LoadHalves(WireType type, const std::byte* from, size_t count, float scale, float* to) {
  const size_t done = LoadVectors(type, from, count, scale, to);
  load_wire_values_scalar(type, from + 2 * done, count - done, scale, to + done);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradbus {
namespace {

HWY_EXPORT(StoreHalves);
HWY_EXPORT(LoadHalves);
HWY_EXPORT(Scale);

uint16_t narrow(WireType type, float value) {
  return type == WireType::kFp16 ? f16_from_f32(value) : bf16_from_f32(value);
}
float widen(WireType type, uint16_t half) {
  return type == WireType::kFp16 ? f32_from_f16(half) : f32_from_bf16(half);
}

}  // namespace

void store_wire_values(WireType type, const float* from, size_t count, std::byte* to) {
  if (type == WireType::kF32) return store_wire_values_scalar(type, from, count, to);
  HWY_DYNAMIC_DISPATCH(StoreHalves)(type, from, count, to);
}

void load_wire_values(WireType type, const std::byte* from, size_t count, float scale, float* to) {
  if (type == WireType::kF32) {
    if (count != 0) std::memcpy(to, from, 4 * count);
    return HWY_DYNAMIC_DISPATCH(Scale)(scale, count, to);
  }
  HWY_DYNAMIC_DISPATCH(LoadHalves)(type, from, count, scale, to);
}

void store_wire_values_scalar(WireType type, const float* from, size_t count, std::byte* to) {
  if (count == 0) return;
  if (type == WireType::kF32) {
    std::memcpy(to, from, 4 * count);
    return;
  }
  for (size_t i = 0; i < count; ++i) store_field(to + 2 * i, narrow(type, from[i]));
}

void load_wire_values_scalar(WireType type, const std::byte* from, size_t count, float scale,
                             float* to) {
  for (size_t i = 0; i < count; ++i)
    to[i] = scale * (type == WireType::kF32 ? load_field<float>(from + 4 * i)
                                            : widen(type, load_field<uint16_t>(from + 2 * i)));
}

}  // namespace gradbus
#endif
