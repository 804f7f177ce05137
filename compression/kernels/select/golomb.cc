#include "compression/kernels/select/golomb.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/select/golomb.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

#include "compression/kernels/vector/vector_inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace {

#if GRADBUS_WITHOUT_VECTORS
bool GolombPairs(const GolombCode& code, const uint32_t* indices, size_t entries, uint64_t* words,
                 uint64_t* lengths) {
  return golomb_pairs_scalar(code, indices, entries, words, lengths);
}
#else
using U64 = hn::Repartition<uint64_t, U32>;
using I32Vec = hn::Vec<I32>;

// The constant parts of a code.
struct Constants {
  explicit Constants(const GolombCode& code)
      : divisor(static_cast<int32_t>(code.divisor)),
        shorts(static_cast<int32_t>(code.shorts)),
        width(static_cast<int>(code.width)),
        quotients(static_cast<int32_t>(kGolombEntryBits) - 3 - width),
        reciprocal(1 / static_cast<float>(code.divisor)) {}

  int32_t divisor;
  int32_t shorts;
  int width;
  int32_t quotients;  // the most zeros an entry may have; one more may be too long
  float reciprocal;
};

struct Entries {
  U32Vec codes;
  U32Vec lengths;
};

// A quotient of at most 26, computed in f32, is off by at most 1. A larger quotient is detected as
// too large.
HWY_INLINE bool MakeEntries(const Constants& of, const uint32_t* indices, Entries& to) {
  const I32 d;
  const U32 du;
  const F32 df;
  const I32Vec one = hn::Set(d, 1);
  const I32Vec divisor = hn::Set(d, of.divisor);
  const I32Vec shorts = hn::Set(d, of.shorts);
  const U32Vec skipped = hn::Sub(hn::LoadU(du, indices), hn::LoadU(du, indices - 1));
  const I32Vec gap = hn::Sub(hn::BitCast(d, skipped), one);
  const F32Vec about = hn::Mul(hn::ConvertTo(df, gap), hn::Set(df, of.reciprocal));
  I32Vec quotient = hn::ConvertTo(d, about);
  if (HWY_UNLIKELY(!hn::AllFalse(d, hn::Gt(quotient, hn::Set(d, of.quotients))))) return false;
  I32Vec rest = hn::Sub(gap, hn::Mul(quotient, divisor));
  const auto less = hn::Lt(rest, hn::Zero(d));
  quotient = hn::Sub(quotient, hn::IfThenElseZero(less, one));
  rest = hn::Add(rest, hn::IfThenElseZero(less, divisor));
  const auto more = hn::Gt(rest, hn::Sub(divisor, one));
  quotient = hn::Add(quotient, hn::IfThenElseZero(more, one));
  rest = hn::Sub(rest, hn::IfThenElseZero(more, divisor));
  const auto longer = hn::Gt(rest, hn::Sub(shorts, one));
  const I32Vec is_long = hn::IfThenElseZero(longer, one);
  const I32Vec number = hn::Add(rest, hn::IfThenElseZero(longer, shorts));
  const I32Vec low = hn::IfThenElse(longer, hn::ShiftRight<1>(number), number);
  const I32Vec last = hn::ShiftLeftSame(hn::And(number, is_long), of.width);
  const I32Vec tail = hn::Or(hn::ShiftLeft<1>(hn::Or(low, last)), one);
  const U32Vec zeros = hn::BitCast(du, quotient);
  to.codes = hn::Shl(hn::BitCast(du, tail), zeros);
  to.lengths = hn::Add(hn::Add(zeros, hn::BitCast(du, is_long)),
                       hn::Set(du, static_cast<uint32_t>(of.width + 1)));
  return true;
}

bool GolombPairs(const GolombCode& code, const uint32_t* indices, size_t entries, uint64_t* words,
                 uint64_t* lengths) {
  const U64 d;
  const Constants constants(code);
  if (constants.quotients < 0) return false;
  const auto first_of = hn::Set(d, 0xffffffff);
  size_t i = 0;
  for (; i + kLanes <= entries; i += kLanes) {
    Entries made;
    if (!MakeEntries(constants, indices + i, made)) return false;
    const auto codes = hn::BitCast(d, made.codes);
    const auto bits = hn::BitCast(d, made.lengths);
    const auto first_bits = hn::And(bits, first_of);
    const auto second = hn::Shl(hn::ShiftRight<32>(codes), first_bits);
    hn::StoreU(hn::Or(hn::And(codes, first_of), second), d, words + i / 2);
    hn::StoreU(hn::Add(first_bits, hn::ShiftRight<32>(bits)), d, lengths + i / 2);
  }
  return golomb_pairs_scalar(code, indices + i, entries - i, words + i / 2, lengths + i / 2);
}
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradbus {

HWY_EXPORT(GolombPairs);

bool golomb_pairs(const GolombCode& code, const uint32_t* indices, size_t entries, uint64_t* words,
                  uint64_t* lengths) {
  return HWY_DYNAMIC_DISPATCH(GolombPairs)(code, indices, entries, words, lengths);
}

bool golomb_pairs_scalar(const GolombCode& code, const uint32_t* indices, size_t entries,
                         uint64_t* words, uint64_t* lengths) {
  // The caller guarantees an index before the first one.
  const uint32_t* const before = indices - 1;
  for (size_t i = 0; i < entries; ++i) {
    const GolombEntry entry = golomb_entry(code, indices[i] - before[i] - 1);
    const uint32_t bits = entry.quotient + entry.tail_bits;
    if (bits > kGolombEntryBits) return false;
    const uint64_t string = entry.tail << entry.quotient;
    words[i / 2] = i % 2 == 0 ? string : words[i / 2] | string << lengths[i / 2];
    lengths[i / 2] = i % 2 == 0 ? bits : lengths[i / 2] + bits;
  }
  return true;
}

}  // namespace gradbus
#endif
