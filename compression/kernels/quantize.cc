#include "compression/kernels/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

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

// x from the caller; the code in the lower byte of each lane, the rest of which is rubbish.
struct Coded {
  U32Vec code;
  F32Vec value;
};

// Adding 1.5 * 2^23 + offset rounds to whole numbers, ties to even because the offset is even, and
// leaves level + offset in the lower bits: the sum lies in [2^23, 2^24), where the unit is 1.
template <bool kStochastic>
struct LevelRule {
  static constexpr bool kRandom = kStochastic;
  explicit LevelRule(const CodeFormat& format)
      : limit(static_cast<float>(format.levels)),
        whole(0x1.8p23F + static_cast<float>(format.offset())) {}

  HWY_INLINE Coded encode(F32Vec x, U32Vec random) const {
    const F32 d;
    F32Vec near = hn::Min(hn::Max(x, hn::Set(d, -limit)), hn::Set(d, limit));
    if constexpr (kStochastic) {
      const F32Vec noise = hn::ConvertTo(d, hn::BitCast(I32(), random));
      const F32Vec scaled = hn::Mul(noise, hn::Set(d, kDitherUnit));
      near = hn::Add(near, hn::Sub(scaled, hn::Set(d, kDitherCentre)));
    }
    const F32Vec sum = hn::Add(near, hn::Set(d, whole));
    return {hn::BitCast(U32(), sum), hn::Sub(sum, hn::Set(d, whole))};
  }

  float limit;
  float whole;
};

// Adding 2^(e + 23 - mantissa bits), e the exponent of the magnitude but at least that of
// subnormals, rounds to what the format has there and leaves the number of its steps in the lower
// bits: mantissa with the leading one, to which the exponents below are added.
template <int kMantissaBits, int kExponentMin>
struct Fp8Rule {
  static constexpr bool kRandom = false;
  static constexpr uint32_t kSmallest = static_cast<uint32_t>(127 + kExponentMin) << 23;
  explicit Fp8Rule(const CodeFormat&) {}

  HWY_INLINE Coded encode(F32Vec x, U32Vec) const {
    const F32 d;
    const U32 du;
    const F32Vec magnitude = hn::Abs(x);
    const F32Vec sign = hn::Xor(x, magnitude);
    const U32Vec exponent = hn::Max(hn::And(hn::BitCast(du, magnitude), hn::Set(du, 0x7f800000)),
                                    hn::Set(du, kSmallest));
    const U32Vec whole = hn::Add(exponent, hn::Set(du, (23u - kMantissaBits) << 23));
    const F32Vec sum = hn::Add(magnitude, hn::BitCast(d, whole));
    const U32Vec steps = hn::Sub(hn::BitCast(du, sum), whole);
    const U32Vec below =
        hn::ShiftRight<23 - kMantissaBits>(hn::Sub(exponent, hn::Set(du, kSmallest)));
    const U32Vec code = hn::Or(hn::Add(steps, below), hn::ShiftRight<24>(hn::BitCast(du, sign)));
    return {code, hn::Or(hn::Sub(sum, hn::BitCast(d, whole)), sign)};
  }
};

// As in quantize_scalar.cc.
struct NaturalRule {
  static constexpr bool kRandom = true;
  explicit NaturalRule(const CodeFormat&) {}

  HWY_INLINE Coded encode(F32Vec x, U32Vec random) const {
    const F32 d;
    const U32 du;
    const U32Vec bits = hn::BitCast(du, x);
    const U32Vec magnitude = hn::And(bits, hn::Set(du, 0x7fffffff));
    const U32Vec sign = hn::Xor(bits, magnitude);
    const U32Vec noise = hn::Add(hn::ShiftLeft<7>(random), hn::Set(du, 64));
    const U32Vec rounded = hn::Add(magnitude, noise);
    const U32Vec code = hn::Or(hn::ShiftRight<23>(rounded), hn::ShiftRight<24>(sign));
    const U32Vec power = hn::And(rounded, hn::Set(du, 0x7f800000));
    return {code, hn::BitCast(d, hn::Or(power, sign))};
  }
};

template <bool kResidual, class Rule>
HWY_INLINE void quantize_vector(const Rule& rule, const QuantizePiece& piece, size_t at,
                                BucketScale scale, U32Vec random) {
  const F32 d;
  const F32Vec values = hn::LoadU(d, piece.values + at);
  const Coded coded = rule.encode(hn::Mul(values, hn::Set(d, scale.inverse)), random);
  hn::StoreU(hn::TruncateTo(U8(), coded.code), U8(), piece.codes + at);
  if constexpr (kResidual) {
    const F32Vec decoded = hn::Mul(coded.value, hn::Set(d, scale.step));
    hn::StoreU(hn::Sub(values, decoded), d, piece.residual + at);
  }
}

// Elements [at, end) of one bucket.
template <bool kResidual, class Rule>
HWY_INLINE size_t quantize_groups(const Rule& rule, const QuantizePiece& piece, size_t at,
                                  size_t end, BucketScale scale) {
  constexpr size_t kHalf = kDitherGroup / 2;
  const U32 d;
  for (; at + kDitherGroup <= end; at += kDitherGroup) {
    for (size_t j = 0; j < kHalf; j += kLanes) {
      U32Vec random = hn::Zero(d);
      if constexpr (Rule::kRandom)
        random = random_vector(piece.seed,
                               hn::Iota(d, static_cast<uint32_t>((piece.first + at) / 2 + j)));
      const U32Vec lower = hn::And(random, hn::Set(d, 0xffff));
      quantize_vector<kResidual>(rule, piece, at + j, scale, lower);
      quantize_vector<kResidual>(rule, piece, at + kHalf + j, scale, hn::ShiftRight<16>(random));
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
  const Rule rule(format);
  for (size_t first = 0, b = 0; first < piece.count; first += piece.bucket, ++b) {
    const size_t end = std::min(first + piece.bucket, piece.count);
    const BucketScale scale = piece.scales[b];
    size_t at = first;
    if (std::isfinite(scale.step))
      at = piece.residual == nullptr ? quantize_groups<false>(rule, piece, first, end, scale)
                                     : quantize_groups<true>(rule, piece, first, end, scale);
    if (at < end) quantize_scalar(format, rest_of(piece, at, end));
  }
}

void Quantize(const CodeFormat& format, const QuantizePiece& piece) {
  switch (format.kind) {
    case CodeKind::kLevels:
      return format.stochastic ? QuantizeBy<LevelRule<true> >(format, piece)
                               : QuantizeBy<LevelRule<false> >(format, piece);
    case CodeKind::kE4m3: return QuantizeBy<Fp8Rule<3, -6> >(format, piece);
    case CodeKind::kE5m2: return QuantizeBy<Fp8Rule<2, -14> >(format, piece);
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
