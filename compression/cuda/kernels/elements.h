// What kernels do to one element and to one bucket: compression/kernels/*_scalar.cc and
// codecs/bucket_scale.cc again, in forms that a device has. Those are the definition; tests compare
// every code and every step.
#pragma once

#include <cmath>

#include "common/kernels/half.h"
#include "compression/codecs/bucket_quantizer.h"
#include "compression/cuda/cuda_codec.h"
#include "compression/cuda/kernels/portable.h"
#include "compression/kernels/quantize/quantize.h"
#include "compression/kernels/vector/dither.h"
#include "compression/payload.h"

namespace gradbus {

inline constexpr uint32_t kQuietNan = 0x7fc00000;

// Of a CudaEncode or CudaPartition. The residual has the gradient by now:
template <class Partition>
GRADBUS_BOTH bool is_taken(const Partition& input) {
  return input.taken != nullptr && *input.taken != 0;
}
template <class Partition>
GRADBUS_BOTH bool has_gradient(const Partition& input) {
  return input.gradient != nullptr && !is_taken(input);
}
template <class Partition>
GRADBUS_BOTH float decay_of(const Partition& input) {
  return is_taken(input) ? 1.0F : input.decay;
}

// v of element i. A device's sums forget which NaN went in; a processor's do not, so that is said.
template <class Partition>
GRADBUS_BOTH float compensated(const Partition& input, uint32_t i) {
  if (input.residual == nullptr) return input.gradient[i];
  const float fresh = has_gradient(input) ? input.gradient[i] : 0.0F;
  if (fresh != fresh) return float_of(bits_of(fresh) | 0x400000);
  return fresh + decay_of(input) * input.residual[i];
}

// The same for codecs that take the residual as it is, zeros below zero included, where there is
// nothing else.
template <class Partition>
GRADBUS_BOTH float plain_element(const Partition& input, uint32_t i) {
  if (!has_gradient(input) && decay_of(input) == 1) return input.residual[i];
  return compensated(input, i);
}

// Of payloads that send every element: flags 0, entries = count.
GRADBUS_BOTH inline void store_header(const CudaEncode& input, uint32_t body_bytes) {
  auto* words = reinterpret_cast<uint32_t*>(input.payload);
  words[0] = input.codec.id | uint32_t{kPayloadVersion} << 8 | uint32_t{input.codec.detail} << 24;
  words[1] = input.count;
  words[2] = body_bytes;
  words[3] = input.count;
}

// ---- dense elements

struct CudaF32 {
  using Bits = uint32_t;
  GRADBUS_BOTH static Bits narrow(float value) { return bits_of(value); }
  GRADBUS_BOTH static float widen(Bits bits) { return float_of(bits); }
};
struct CudaF16 {
  using Bits = uint16_t;
  GRADBUS_BOTH static Bits narrow(float value) { return f16_from_f32(value); }
  GRADBUS_BOTH static float widen(Bits bits) { return f32_from_f16(bits); }
};
struct CudaBf16 {
  using Bits = uint16_t;
  GRADBUS_BOTH static Bits narrow(float value) { return bf16_from_f32(value); }
  GRADBUS_BOTH static float widen(Bits bits) { return f32_from_bf16(bits); }
};

// ---- codes (compression/kernels/quantize/quantize.h)

GRADBUS_BOTH constexpr int32_t code_offset(const CudaCodec& codec) { return 1 << (codec.bits - 1); }

GRADBUS_BOTH inline uint8_t level_code(const CudaCodec& codec, float x, uint32_t random) {
  const auto limit = static_cast<float>(codec.levels);
  const float clamped = smaller(larger(x, -limit), limit);
  if (codec.stochastic == 0)
    return static_cast<uint8_t>(static_cast<int32_t>(rintf(clamped)) + code_offset(codec));
  const int32_t parts = static_cast<int32_t>(rintf(clamped * (1 << kDitherBits))) +
                        (code_offset(codec) << kDitherBits);
  return static_cast<uint8_t>((parts + static_cast<int32_t>(random)) >> kDitherBits);
}

// A power of two with a normal exponent.
GRADBUS_BOTH inline float power_of_two(int32_t exponent) {
  return float_of(static_cast<uint32_t>(127 + exponent) << 23);
}

template <int32_t kMantissaBits, int32_t kExponentMin>
struct CudaFp8 {
  // |x| is `steps` of 2^(exponent - kMantissaBits); below the smallest exponent there is no other.
  GRADBUS_BOTH static uint8_t code(float x) {
    const uint32_t magnitude = bits_of(x) & 0x7fffffff;
    const int32_t exponent = larger(static_cast<int32_t>(magnitude >> 23) - 127, kExponentMin);
    const float steps = rintf(float_of(magnitude) * power_of_two(kMantissaBits - exponent));
    const int32_t code = ((exponent - kExponentMin) << kMantissaBits) + static_cast<int32_t>(steps);
    return static_cast<uint8_t>(static_cast<uint32_t>(code) | (bits_of(x) >> 31) << 7);
  }
  GRADBUS_BOTH static float value(uint8_t code) {
    const int32_t field = (code & 0x7f) >> kMantissaBits;
    const int32_t mantissa = code & ((1 << kMantissaBits) - 1);
    const int32_t whole = field == 0 ? mantissa : mantissa + (1 << kMantissaBits);
    const int32_t exponent = kExponentMin + larger(field - 1, 0) - kMantissaBits;
    const float magnitude = static_cast<float>(whole) * power_of_two(exponent);
    return (code & 0x80) != 0 ? -magnitude : magnitude;
  }
};
using CudaE4m3 = CudaFp8<3, -6>;
using CudaE5m2 = CudaFp8<2, -14>;

GRADBUS_BOTH inline uint8_t natural_code(float x, uint32_t random) {
  const uint32_t bits = bits_of(x);
  const uint32_t rounded = (bits & 0x7fffffff) + (random << 8) + 128;
  return static_cast<uint8_t>((rounded >> 23) | ((bits >> 24) & 0x80));
}
GRADBUS_BOTH inline float natural_value(uint32_t code) {
  return float_of((code & 0x7f) << 23 | (code & 0x80) << 24);
}

template <CodeKind kKind>
GRADBUS_BOTH uint8_t code_of(const CudaCodec& codec, float x, uint32_t random) {
  if constexpr (kKind == CodeKind::kLevels) return level_code(codec, x, random);
  if constexpr (kKind == CodeKind::kE4m3) return CudaE4m3::code(x);
  if constexpr (kKind == CodeKind::kE5m2) return CudaE5m2::code(x);
  if constexpr (kKind == CodeKind::kNatural) return natural_code(x, random);
}

template <CodeKind kKind>
GRADBUS_BOTH float value_of(const CudaCodec& codec, uint8_t code) {
  if constexpr (kKind == CodeKind::kLevels)
    return static_cast<float>(static_cast<int32_t>(code) - code_offset(codec));
  if constexpr (kKind == CodeKind::kE4m3) return CudaE4m3::value(code);
  if constexpr (kKind == CodeKind::kE5m2) return CudaE5m2::value(code);
  if constexpr (kKind == CodeKind::kNatural) return natural_value(code);
}

// ---- the step of a bucket (codecs/bucket_scale.cc)

struct CudaScale {
  float step;
  float inverse;
};

GRADBUS_BOTH inline bool asks_for_squares(const CudaCodec& codec) {
  const auto bound = static_cast<Bound>(codec.bound);
  return bound == Bound::kNorm || bound == Bound::kClipped;
}

GRADBUS_BOTH inline CudaScale power_scale(uint32_t largest) {
  if (largest >= 0x7f000000) return {float_of(kQuietNan), 0};
  if (largest == 0) return {0, 0};
  const uint32_t exponent = (largest >> 23) + 1;  // of the step; 2^-127 is subnormal
  return {float_of(exponent << 23), float_of(exponent == 254 ? 0x400000 : (254 - exponent) << 23)};
}

GRADBUS_BOTH inline CudaScale linear_scale(double bound, float top) {
  const auto step = static_cast<float>(bound / top);
  if (!is_finite(step * top)) return {float_of(kQuietNan), 0};
  if (step < kStepMin) return {0, 0};
  return {step, static_cast<float>(top / bound)};
}

GRADBUS_BOTH inline double bound_of(const CudaCodec& codec, uint32_t largest, double squares,
                                    uint32_t count) {
  const auto bound = static_cast<Bound>(codec.bound);
  if (bound == Bound::kNorm) return sqrt(squares);
  const double most = float_of(largest);
  if (bound == Bound::kLargest || largest >= 0x7f800000) return most;
  return smaller(most, codec.clip * sqrt(squares / static_cast<double>(count)));
}

// largest: bits of max |v|.
GRADBUS_BOTH inline CudaScale scale_of(const CudaCodec& codec, uint32_t largest, double squares,
                                       uint32_t count) {
  if (static_cast<Bound>(codec.bound) == Bound::kPowerOfTwo) return power_scale(largest);
  return linear_scale(bound_of(codec, largest, squares, count), codec.top);
}

}  // namespace gradbus
