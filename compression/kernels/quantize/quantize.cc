#include "compression/kernels/quantize/quantize.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "common/check.h"
#include "compression/kernels/vector/prefetch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/quantize/quantize.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

#include "compression/kernels/vector/statistics_inl.h"
#include "compression/kernels/vector/vector_inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace {

#if GRADBUS_WITHOUT_VECTORS

void Quantize(const CodeFormat& format, const QuantizePiece& piece) {
  quantize_scalar(format, piece);
}
void QuantizeAndTake(const CodeFormat& format, const QuantizePiece& piece,
                     const NextBlockStatistics& ahead) {
  quantize_scalar(format, piece);
  take_statistics_scalar(ahead.run, ahead.largest, ahead.squares);
}

#else

using U16 = hn::Repartition<uint16_t, U32>;
using U16Vec = hn::Vec<U16>;

// The code is the byte of each lane that begins at bit kCodeAt of the rule. The other bits are
// undefined.
struct Coded {
  U32Vec code;
  F32Vec value;
};

// A rule is made for one bucket. Its `inverse` and `step` may contain powers of two that the rule
// needs.
//
// Adding 2^23 + 2^22 + offset rounds to whole numbers, with ties to even because the offset is
// even. It leaves level + offset in the lowest byte: sums are in [2^23, 2^24), where the unit in
// the last place is 1.
struct NearestRule {
  static constexpr bool kRandom = false;
  static constexpr bool kJoins = false;
  static constexpr int kCodeAt = 0;
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

// x is counted in parts of 2^-15 and rounded by adding 2^23 + offset * 2^15. The random bits are
// parts too, and carry into the level above. The code begins at bit 15. Vectors of 16 lanes take it
// from bit 16, which saves a shift.
template <bool kClipped>
struct RandomRule {
  static constexpr bool kRandom = true;
  static constexpr bool kJoins = true;
  static constexpr int kCodeAt = kLanes == 16 ? 16 : 15;
  static HWY_INLINE U32Vec lower(U32Vec mixed) {
    return hn::And(hn::Xor(mixed, hn::ShiftRight<16>(mixed)), hn::Set(U32(), 0x7fff));
  }
  static HWY_INLINE U32Vec upper(U32Vec mixed) { return hn::ShiftRight<17>(mixed); }
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
    return {kCodeAt == 16 ? hn::Add(carried, carried) : carried,
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

// `whole` is 2^(e + 23 - mantissa bits). e is the exponent of the magnitude, but at least that of
// subnormals. Adding `whole` rounds to the precision of the format and counts its steps in the
// lowest byte: the mantissa with its leading one. Then the exponents above the smallest are added.
// For that, `whole` contains minus the smallest exponent, mod 256; it is even, so ties do not
// change. Bit 7 is then 0 and gets the sign.
template <int kMantissaBits, int kExponentMin>
struct Fp8Rule {
  static constexpr bool kRandom = false;
  static constexpr bool kJoins = true;
  static constexpr int kCodeAt = 0;
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
    const U32Vec exponent = hn::Max(hn::And(bits, hn::Set(du, 0x7f800000)), hn::Set(du, kSmallest));
    const F32Vec whole = hn::BitCast(d, hn::Add(exponent, hn::Set(du, kWhole)));
    const F32Vec sum = hn::Add(hn::Abs(x), whole);
    const U32Vec code = hn::Add(hn::BitCast(du, sum), hn::ShiftRight<kShift>(exponent));
    const U32Vec value = hn::BitCast(du, hn::Sub(sum, whole));
    return {hn::OrAnd(code, hn::ShiftRight<24>(bits), hn::Set(du, 0x80)),
            hn::BitCast(d, hn::OrAnd(value, bits, hn::Set(du, 0x80000000)))};
  }

  float inverse;
  float step;
};
using E4m3Rule = Fp8Rule<3, -6>;
using E5m2Rule = Fp8Rule<2, -14>;

// Works like quantize_scalar.cc, but the sign stays in front. x is at most 1, so bit 30 of the
// rounded x is 0, and so is bit 7 of its exponent field. Adding x to its magnitude keeps the sign
// and moves the field up to it. The random bits are placed where they are added, with their half.
struct NaturalRule {
  static constexpr bool kRandom = true;
  static constexpr bool kJoins = true;
  static constexpr int kCodeAt = 24;
  static HWY_INLINE U32Vec with_half(U32Vec random) {
    const U32 d;
    return hn::OrAnd(hn::Set(d, 128), random, hn::Set(d, 0x7fff00));
  }
  static HWY_INLINE U32Vec lower(U32Vec mixed) {
    return with_half(hn::Xor(hn::ShiftLeft<8>(mixed), hn::ShiftRight<8>(mixed)));
  }
  static HWY_INLINE U32Vec upper(U32Vec mixed) { return with_half(hn::ShiftRight<9>(mixed)); }
  NaturalRule(const CodeFormat&, BucketScale scale) : inverse(scale.inverse), step(scale.step) {}

  HWY_INLINE Coded encode(F32Vec x, U32Vec random) const {
    const U32 d;
    const U32Vec rounded = hn::Add(hn::BitCast(d, x), random);
    const U32Vec power = hn::And(rounded, hn::Set(d, 0xff800000));
    return {hn::Add(rounded, hn::And(rounded, hn::Set(d, 0x7fffffff))), hn::BitCast(F32(), power)};
  }

  float inverse;
  float step;
};

template <bool kResidual, class Rule>
HWY_INLINE U32Vec quantize_vector(const Rule& rule, const QuantizePiece& piece, size_t at,
                                  U32Vec random) {
  const F32 d;
  const F32Vec values = hn::LoadU(d, piece.values + at);
  const Coded coded = rule.encode(hn::Mul(values, hn::Set(d, rule.inverse)), random);
  if constexpr (kResidual) {
    const F32Vec decoded = hn::Mul(coded.value, hn::Set(d, rule.step));
    hn::StoreU(hn::Sub(values, decoded), d, piece.residual + at);
  }
  return coded.code;
}

// The codes of two vectors that are half a group apart.
struct CodePair {
  U32Vec lower;
  U32Vec upper;
};

// Joins two vectors of 16 lanes, which are adjacent: together they take three operations instead of
// four or six. Rules without other work do not join: half of these stores cross a cache line, and
// int8 took 1.2 times as long.
template <class Rule>
HWY_INLINE void store_sixteens(const CodePair& pair, uint8_t* to) {
  constexpr size_t kHalf = kDitherGroup / 2;
  constexpr int kAt = Rule::kCodeAt;
  if constexpr (Rule::kJoins) {
    const hn::Repartition<uint16_t, U32> d;
    const hn::Rebind<uint8_t, decltype(d)> bytes;
    const auto low = hn::BitCast(d, pair.lower);
    const auto high = hn::BitCast(d, pair.upper);
    const auto words = kAt < 16 ? hn::ConcatEven(d, high, low) : hn::ConcatOdd(d, high, low);
    hn::StoreU(hn::TruncateTo(bytes, hn::ShiftRight<kAt % 16>(words)), bytes, to);
  } else {
    hn::StoreU(hn::TruncateTo(U8(), hn::ShiftRight<kAt>(pair.lower)), U8(), to);
    hn::StoreU(hn::TruncateTo(U8(), hn::ShiftRight<kAt>(pair.upper)), U8(), to + kHalf);
  }
}

// The bytes of `first` and `second` that begin at bit kAt. They go to the lower and upper half of
// each lane: to its bit 0, or to bit 8 if kAt is 24.
template <int kAt>
HWY_INLINE U16Vec halves_of(U32Vec first, U32Vec second) {
  const U16 d;
  if constexpr (kAt == 0) {
    second = hn::ShiftLeft<16>(second);
  } else if constexpr (kAt == 24) {
    first = hn::ShiftRight<16>(first);
  } else {
    static_assert(kAt == 15);
    first = hn::ShiftRight<15>(first);
    second = hn::Add(second, second);
  }
  return hn::OddEven(hn::BitCast(d, second), hn::BitCast(d, first));
}

// Stores four vectors of 4 or 8 lanes in order. Their bytes are joined in each lane, then in each
// block of four lanes, then across two blocks. Narrowing them one by one takes twice the
// operations: a third of all operations of natural on AVX2.
template <int kAt>
HWY_INLINE void store_four(U32Vec a, U32Vec b, U32Vec c, U32Vec e, uint8_t* to) {
  const U32 d;
  const hn::Repartition<uint8_t, U32> bytes;
  alignas(64) static constexpr uint8_t kColumns[16] = {0, 4, 8, 12, 2, 6, 10, 14,
                                                       1, 5, 9, 13, 3, 7, 11, 15};
  const U16Vec even = halves_of<kAt>(a, b);
  const U16Vec odd = halves_of<kAt>(c, e);
  const auto low = hn::Set(U16(), 0xff);
  const U16Vec lanes = kAt == 24 ? hn::Or(hn::ShiftRight<8>(even), hn::AndNot(low, odd))
                                 : hn::Or(hn::And(even, low), hn::ShiftLeft<8>(odd));
  const auto columns = hn::LoadDup128(bytes, kColumns);
  const auto blocks = hn::BitCast(d, hn::TableLookupBytes(hn::BitCast(bytes, lanes), columns));
  if constexpr (kLanes == 8) {
    alignas(64) static constexpr uint32_t kAcross[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    const auto across = hn::IndicesFromVec(d, hn::Load(d, kAcross));
    hn::StoreU(hn::BitCast(bytes, hn::TableLookupLanes(blocks, across)), bytes, to);
  } else {
    hn::StoreU(hn::BitCast(bytes, blocks), bytes, to);
  }
}

// Stores a whole group, whose halves have kVectors vectors each.
template <class Rule, size_t kVectors>
HWY_INLINE void store_codes(const CodePair (&pairs)[kVectors], uint8_t* to) {
  constexpr int kAt = Rule::kCodeAt;
  if constexpr (kVectors == 1) {
    store_sixteens<Rule>(pairs[0], to);
  } else if constexpr (kVectors == 2) {
    store_four<kAt>(pairs[0].lower, pairs[1].lower, pairs[0].upper, pairs[1].upper, to);
  } else {
    static_assert(kVectors == 4);
    store_four<kAt>(pairs[0].lower, pairs[1].lower, pairs[2].lower, pairs[3].lower, to);
    store_four<kAt>(pairs[0].upper, pairs[1].upper, pairs[2].upper, pairs[3].upper, to + 16);
  }
}

HWY_INLINE void fetch_soon(const QuantizePiece& piece, size_t at) {
  for (const float* soon : piece.soon) {
    if (soon == nullptr) continue;
    gradbus::prefetch(soon + at);
    gradbus::prefetch(soon + at + kDitherGroup / 2);
  }
}

template <bool kResidual, class Rule>
HWY_INLINE CodePair quantize_pair(const Rule& rule, const QuantizePiece& piece, size_t at,
                                  U32Vec counter) {
  U32Vec lower = counter;
  U32Vec upper = counter;
  if constexpr (Rule::kRandom) {
    const U32Vec mixed = mix_most(counter);
    lower = Rule::lower(mixed);
    upper = Rule::upper(mixed);
  }
  return {quantize_vector<kResidual>(rule, piece, at, lower),
          quantize_vector<kResidual>(rule, piece, at + kDitherGroup / 2, upper)};
}

// Encodes a group, which has kHalf pairs of elements. `counters` are those of its first vector.
template <bool kResidual, class Rule, size_t... kVector>
HWY_INLINE void quantize_group(const Rule& rule, const QuantizePiece& piece, size_t at,
                               U32Vec counter, U32Vec stride, std::index_sequence<kVector...>) {
  U32Vec counters[sizeof...(kVector)];
  ((counters[kVector] = counter, counter = hn::Add(counter, stride)), ...);
  const CodePair pairs[] = {
      quantize_pair<kResidual>(rule, piece, at + kVector * kLanes, counters[kVector])...};
  store_codes<Rule>(pairs, piece.codes + at);
}

// Encodes elements [at, end) of one bucket, as far as whole groups fit. Calls `take` for each
// group.
template <bool kResidual, class Rule, class Take>
HWY_INLINE size_t quantize_groups(const Rule& rule, const QuantizePiece& piece, size_t at,
                                  size_t end, Take take) {
  constexpr size_t kHalf = kDitherGroup / 2;
  const U32 d;
  const DitherStream stream = dither_stream(piece.seed);
  const uint32_t pair = static_cast<uint32_t>(piece.first + at) / 2;
  const U32Vec stride = hn::Set(d, stream.step * kLanes);
  const U32Vec group_stride = hn::Set(d, stream.step * kHalf);
  U32Vec counter = hn::Add(hn::Set(d, stream.start + pair * stream.step),
                           hn::Mul(hn::Iota(d, 0), hn::Set(d, stream.step)));
  for (; at + kDitherGroup <= end; at += kDitherGroup) {
    fetch_soon(piece, at);
    take(at);
    quantize_group<kResidual>(rule, piece, at, counter, stride,
                              std::make_index_sequence<kHalf / kLanes>());
    if constexpr (Rule::kRandom) counter = hn::Add(counter, group_stride);
  }
  return at;
}

// The rest of the piece from `at` on, as part of the bucket that contains `at`.
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
  const auto nothing = [](size_t) HWY_ATTR {};
  for (size_t first = 0, b = 0; first < piece.count; first += piece.bucket, ++b) {
    const size_t end = std::min(first + piece.bucket, piece.count);
    const BucketScale scale = piece.scales[b];
    const Rule rule(format, scale);
    size_t at = first;
    if (std::isfinite(scale.step))
      at = piece.residual == nullptr ? quantize_groups<false>(rule, piece, first, end, nothing)
                                     : quantize_groups<true>(rule, piece, first, end, nothing);
    if (at < end) quantize_scalar(format, rest_of(piece, at, end));
  }
}

// ---- encoding with the statistics of later elements

// In elements. The processor runs ahead of a loop that only reads, but not of a loop with this much
// work: with 512, fp8 takes 1.2 times as long.
constexpr size_t kNextBlockPrefetch = 1536;

HWY_INLINE void prefetch_next_block(const float* from) {
  hwy::Prefetch(from);
  hwy::Prefetch(from + kDitherGroup / 2);
}

template <class Source, class Asked, class Rule>
void QuantizeAndTakeBy(const CodeFormat& format, const QuantizePiece& whole,
                       const NextBlockStatistics& ahead) {
  constexpr bool kKept = !std::is_same_v<Source, GradientOnly>;
  const QuantizePiece piece = whole;
  const StatisticsRun run = ahead.run;
  for (size_t first = 0, b = 0; first < piece.count; first += piece.bucket, ++b) {
    const size_t end = std::min(first + piece.bucket, piece.count);
    const BucketScale scale = piece.scales[b];
    Taker<Source, Asked> taker;
    const auto take = [&](size_t at) HWY_ATTR {
      prefetch_next_block(run.gradient + at + kNextBlockPrefetch);
      if constexpr (kKept) prefetch_next_block(run.kept + at + kNextBlockPrefetch);
      taker.take(run, at);
    };
    if (HWY_LIKELY(std::isfinite(scale.step))) {
      quantize_groups<kKept>(Rule(format, scale), piece, first, end, take);
    } else {
      quantize_scalar(format, rest_of(piece, first, end));
      for (size_t at = first; at < end; at += kStride) take(at);
    }
    if constexpr (Asked::kLargest) ahead.largest[b] = taker.largest();
    if constexpr (Asked::kSquares) ahead.squares[b] = taker.squares();
  }
}

template <class Source, class Rule>
void QuantizeAndTakeBy(const CodeFormat& format, const QuantizePiece& piece,
                       const NextBlockStatistics& ahead) {
  if (ahead.squares == nullptr)
    return QuantizeAndTakeBy<Source, LargestOnly, Rule>(format, piece, ahead);
  if (ahead.largest == nullptr)
    return QuantizeAndTakeBy<Source, SquaresOnly, Rule>(format, piece, ahead);
  QuantizeAndTakeBy<Source, LargestAndSquares, Rule>(format, piece, ahead);
}

// ---- the rule of a format

struct Coder {
  const CodeFormat& format;
  const QuantizePiece& piece;
  template <class Rule>
  void run() const {
    QuantizeBy<Rule>(format, piece);
  }
};

struct CoderAndTaker {
  const CodeFormat& format;
  const QuantizePiece& piece;
  const NextBlockStatistics& ahead;
  template <class Rule>
  void run() const {
    if (ahead.run.kept == nullptr)
      return QuantizeAndTakeBy<GradientOnly, Rule>(format, piece, ahead);
    QuantizeAndTakeBy<Both, Rule>(format, piece, ahead);
  }
};

template <class Work>
void RunLevels(const CodeFormat& format, const Work& work) {
  if (format.clipped) return work.template run<ClippedRule>();
  return format.stochastic ? work.template run<StochasticRule>() : work.template run<NearestRule>();
}

template <class Work>
void Run(const CodeFormat& format, const Work& work) {
  switch (format.kind) {
    case CodeKind::kLevels: return RunLevels(format, work);
    case CodeKind::kE4m3: return work.template run<E4m3Rule>();
    case CodeKind::kE5m2: return work.template run<E5m2Rule>();
    case CodeKind::kNatural: return work.template run<NaturalRule>();
  }
}

void Quantize(const CodeFormat& format, const QuantizePiece& piece) {
  Run(format, Coder{format, piece});
}
void QuantizeAndTake(const CodeFormat& format, const QuantizePiece& piece,
                     const NextBlockStatistics& ahead) {
  Run(format, CoderAndTaker{format, piece, ahead});
}

#endif  // GRADBUS_WITHOUT_VECTORS

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradbus {

HWY_EXPORT(Quantize);
HWY_EXPORT(QuantizeAndTake);

void quantize(const CodeFormat& format, const QuantizePiece& piece) {
  HWY_DYNAMIC_DISPATCH(Quantize)(format, piece);
}
void quantize(const CodeFormat& format, const QuantizePiece& piece,
              const NextBlockStatistics& ahead) {
  GRADBUS_CHECK(piece.count % kBucketGranule == 0 && ahead.run.count == piece.count &&
                ahead.run.bucket == piece.bucket && ahead.run.gradient != nullptr &&
                (ahead.run.kept != nullptr) == (piece.residual != nullptr));
  HWY_DYNAMIC_DISPATCH(QuantizeAndTake)(format, piece, ahead);
}

}  // namespace gradbus
#endif
