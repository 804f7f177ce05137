#include "compression/kernels/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compression/kernels/call_up.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/quantize.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

#include "compression/kernels/vector_inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace {

#if GRADBUS_WITHOUT_VECTORS

void Quantize(const CodeFormat& format, const QuantizePiece& piece) {
  quantize_scalar(format, piece);
}

#else

// The code is the lower byte of each lane; the rest is rubbish.
struct Coded {
  U32Vec code;
  F32Vec value;
};

// A rule is made for a bucket: `inverse` and `step` may hold powers of two that it needs besides.
//
// Adding 2^23 + 2^22 + offset rounds to whole numbers, ties to even because the offset is even, and
// leaves level + offset in the lowest byte: sums lie in [2^23, 2^24), where the unit is 1.
struct NearestRule {
  static constexpr bool kRandom = false;
  NearestRule(const CodeFormat& format, BucketScale scale)
      : inverse(scale.inverse),
        step(scale.step),
        whole(0x1.8p23F + static_cast<float>(format.offset())) {}

  HWY_INLINE Coded encode(F32Vec x, U32Vec) const {
    const F32 d;
    const F32Vec sum = hn::Add(x, hn::Set(d, whole));
    return {hn::BitCast(U32(), sum), hn::Sub(sum, hn::Set(d, whole))};
  }

  float inverse;
  float step;
  float whole;
};

// x in parts of 2^-15, rounded in the same way by adding 2^23 + offset * 2^15; the random bits are
// parts too, and carry into the level above.
template <bool kClipped>
struct RandomRule {
  static constexpr bool kRandom = true;
  static HWY_INLINE U32Vec lower(U32Vec random) { return hn::And(random, hn::Set(U32(), 0x7fff)); }
  static HWY_INLINE U32Vec upper(U32Vec random) { return hn::ShiftRight<17>(random); }
  RandomRule(const CodeFormat& format, BucketScale scale)
      : inverse(scale.inverse * 0x1p15F),
        step(scale.step * 0x1p-15F),
        limit(static_cast<float>(format.levels) * 0x1p15F),
        whole(0x1p23F + static_cast<float>(format.offset()) * 0x1p15F) {}

  HWY_INLINE Coded encode(F32Vec x, U32Vec random) const {
    const F32 d;
    const U32 du;
    if constexpr (kClipped) x = hn::Min(hn::Max(x, hn::Set(d, -limit)), hn::Set(d, limit));
    const U32Vec parts = hn::BitCast(du, hn::Add(x, hn::Set(d, whole)));
    const U32Vec carried = hn::Add(parts, random);
    const U32Vec level = hn::And(carried, hn::Set(du, ~0x7fffu));
    return {hn::ShiftRight<kDitherBits>(carried),
            hn::Sub(hn::BitCast(d, level), hn::Set(d, whole))};
  }

  float inverse;
  float step;
  float limit;
  float whole;
};
static_assert(kDitherBits == 15, "RandomRule");
using StochasticRule = RandomRule<false>;
using ClippedRule = RandomRule<true>;

// Adding `whole`, 2^(e + 23 - mantissa bits) with e the exponent of the magnitude but at least that
// of subnormals, rounds to what the format has there and counts its steps in the lowest byte: the
// mantissa with its leading one; both have the sign of x. To it come the exponents above the
// smallest; `whole` holds the -smallest of that, mod 256, which is even and so leaves ties as they
// are.
template <int kMantissaBits, int kExponentMin>
struct Fp8Rule {
  static constexpr bool kRandom = false;
  static constexpr int kShift = 23 - kMantissaBits;
  static constexpr uint32_t kSmallest = static_cast<uint32_t>(127 + kExponentMin) << 23;
  static constexpr uint32_t kWhole =
      (static_cast<uint32_t>(kShift) << 23) + (0u - (kSmallest >> kShift)) % 256;
  static_assert(kWhole % 2 == 0);
  Fp8Rule(const CodeFormat&, BucketScale scale) : inverse(scale.inverse), step(scale.step) {}

  HWY_INLINE Coded encode(F32Vec x, U32Vec) const {
    const F32 d;
    const U32 du;
    const U32Vec bits = hn::BitCast(du, x);
    const U32Vec sign = hn::Set(du, 0x80000000);
    const U32Vec exponent = hn::Max(hn::And(bits, hn::Set(du, 0x7f800000)), hn::Set(du, kSmallest));
    const U32Vec magnitude = hn::Add(exponent, hn::Set(du, kWhole));
    const F32Vec whole = hn::BitCast(d, hn::OrAnd(magnitude, bits, sign));
    const F32Vec sum = hn::Add(x, whole);
    const U32Vec code = hn::Add(hn::BitCast(du, sum), hn::ShiftRight<kShift>(exponent));
    const U32Vec value = hn::BitCast(du, hn::Sub(sum, whole));
    return {
        hn::OrAnd(hn::And(code, hn::Set(du, 0x7f)), hn::ShiftRight<24>(bits), hn::Set(du, 0x80)),
        hn::BitCast(d, hn::OrAnd(value, bits, sign))};
  }

  float inverse;
  float step;
};
using E4m3Rule = Fp8Rule<3, -6>;
using E5m2Rule = Fp8Rule<2, -14>;

// As in quantize_scalar.cc, with the sign left in front: x is at most 1, so bit 30 of the rounded x
// is 0, and so is bit 7 of its exponent field. The random bits come where they are added, with
// their half.
struct NaturalRule {
  static constexpr bool kRandom = true;
  static HWY_INLINE U32Vec lower(U32Vec random) {
    const U32 d;
    return hn::OrAnd(hn::Set(d, 128), hn::ShiftLeft<8>(random), hn::Set(d, 0x7fff00));
  }
  static HWY_INLINE U32Vec upper(U32Vec random) {
    const U32 d;
    return hn::OrAnd(hn::Set(d, 128), hn::ShiftRight<9>(random), hn::Set(d, 0x7fff00));
  }
  NaturalRule(const CodeFormat&, BucketScale scale) : inverse(scale.inverse), step(scale.step) {}

  HWY_INLINE Coded encode(F32Vec x, U32Vec random) const {
    const U32 d;
    const U32Vec rounded = hn::Add(hn::BitCast(d, x), random);
    const U32Vec power = hn::And(rounded, hn::Set(d, 0xff800000));
    return {hn::OrAnd(hn::ShiftRight<23>(rounded), hn::ShiftRight<24>(rounded), hn::Set(d, 0x80)),
            hn::BitCast(F32(), power)};
  }

  float inverse;
  float step;
};

template <bool kResidual, class Rule>
HWY_INLINE void quantize_vector(const Rule& rule, const QuantizePiece& piece, size_t at,
                                U32Vec random) {
  const F32 d;
  const F32Vec values = hn::LoadU(d, piece.values + at);
  const Coded coded = rule.encode(hn::Mul(values, hn::Set(d, rule.inverse)), random);
  hn::StoreU(hn::TruncateTo(U8(), coded.code), U8(), piece.codes + at);
  if constexpr (kResidual) {
    const F32Vec decoded = hn::Mul(coded.value, hn::Set(d, rule.step));
    hn::StoreU(hn::Sub(values, decoded), d, piece.residual + at);
  }
}

HWY_INLINE void fetch_soon(const QuantizePiece& piece, size_t at) {
  for (const float* soon : piece.soon) {
    if (soon == nullptr) continue;
    gradbus::call_up(soon + at);
    gradbus::call_up(soon + at + kDitherGroup / 2);
  }
}

// Elements [at, end) of one bucket, as far as whole groups go.
template <bool kResidual, class Rule>
HWY_INLINE size_t quantize_groups(const Rule& rule, const QuantizePiece& piece, size_t at,
                                  size_t end) {
  constexpr size_t kHalf = kDitherGroup / 2;
  const U32 d;
  const DitherStream stream = dither_stream(piece.seed);
  const uint32_t pair = static_cast<uint32_t>(piece.first + at) / 2;
  const U32Vec stride = hn::Set(d, stream.step * kLanes);
  U32Vec counter = hn::Add(hn::Set(d, stream.start + pair * stream.step),
                           hn::Mul(hn::Iota(d, 0), hn::Set(d, stream.step)));
  for (; at + kDitherGroup <= end; at += kDitherGroup) {
    fetch_soon(piece, at);
    for (size_t j = 0; j < kHalf; j += kLanes) {
      U32Vec lower = counter;
      U32Vec upper = counter;
      if constexpr (Rule::kRandom) {
        const U32Vec random = mix_vector(counter);
        counter = hn::Add(counter, stride);
        lower = Rule::lower(random);
        upper = Rule::upper(random);
      }
      quantize_vector<kResidual>(rule, piece, at + j, lower);
      quantize_vector<kResidual>(rule, piece, at + kHalf + j, upper);
    }
  }
  return at;
}

// The piece from `at` on, as part of the bucket `at` lies in.
QuantizePiece rest_of(const QuantizePiece& piece, size_t at, size_t end) {
  QuantizePiece rest = piece;
  rest.values += at;
  rest.count = end - at;
  rest.scales += at / piece.bucket;
  rest.first += static_cast<uint32_t>(at);
  rest.codes += at;
  if (rest.residual != nullptr) rest.residual += at;
  return rest;
}

template <class Rule>
void QuantizeBy(const CodeFormat& format, const QuantizePiece& whole) {
  const QuantizePiece piece = whole;
  for (size_t first = 0, b = 0; first < piece.count; first += piece.bucket, ++b) {
    const size_t end = std::min(first + piece.bucket, piece.count);
    const BucketScale scale = piece.scales[b];
    const Rule rule(format, scale);
    size_t at = first;
    if (std::isfinite(scale.step))
      at = piece.residual == nullptr ? quantize_groups<false>(rule, piece, first, end)
                                     : quantize_groups<true>(rule, piece, first, end);
    if (at < end) quantize_scalar(format, rest_of(piece, at, end));
  }
}

void QuantizeLevels(const CodeFormat& format, const QuantizePiece& piece) {
  if (format.clipped) return QuantizeBy<ClippedRule>(format, piece);
  return format.stochastic ? QuantizeBy<StochasticRule>(format, piece)
                           : QuantizeBy<NearestRule>(format, piece);
}

void Quantize(const CodeFormat& format, const QuantizePiece& piece) {
  switch (format.kind) {
    case CodeKind::kLevels: return QuantizeLevels(format, piece);
    case CodeKind::kE4m3: return QuantizeBy<E4m3Rule>(format, piece);
    case CodeKind::kE5m2: return QuantizeBy<E5m2Rule>(format, piece);
    case CodeKind::kNatural: return QuantizeBy<NaturalRule>(format, piece);
  }
}

#endif  // GRADBUS_WITHOUT_VECTORS

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradbus {

HWY_EXPORT(Quantize);

void quantize(const CodeFormat& format, const QuantizePiece& piece) {
  HWY_DYNAMIC_DISPATCH(Quantize)(format, piece);
}

}  // namespace gradbus
#endif
