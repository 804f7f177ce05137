#include "compression/kernels/quantize/pack.h"

#include "common/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/quantize/pack.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

#include "compression/kernels/vector/vector_inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace {

// Each returns the number of elements it processed, whole vectors only.
#if GRADBUS_WITHOUT_VECTORS

size_t Pack(uint32_t, const uint8_t*, size_t, uint8_t*) { return 0; }
size_t Unpack(uint32_t, const uint8_t*, size_t, uint8_t*) { return 0; }

#else

// Each wide lane holds the codes of one packed byte, one code per byte.
using Pairs = hn::ScalableTag<uint16_t>;
using Quads = hn::ScalableTag<uint32_t>;

template <class Wide>
using Bytes = hn::Repartition<uint8_t, Wide>;
template <class Wide>
using Packed = hn::Rebind<uint8_t, Wide>;

template <class Wide>
hn::Vec<Wide> load_wide(const uint8_t* codes) {
  return hn::BitCast(Wide(), hn::LoadU(Bytes<Wide>(), codes));
}

size_t pack_pairs(const uint8_t* codes, size_t count, uint8_t* packed) {
  constexpr size_t kCodes = 2 * hn::MaxLanes(Pairs());
  size_t i = 0;
  for (; i + kCodes <= count; i += kCodes) {
    const auto wide = load_wide<Pairs>(codes + i);
    const auto joined = hn::Or(wide, hn::ShiftRight<4>(wide));
    hn::StoreU(hn::TruncateTo(Packed<Pairs>(), joined), Packed<Pairs>(), packed + i / 2);
  }
  return i;
}

size_t pack_quads(const uint8_t* codes, size_t count, uint8_t* packed) {
  constexpr size_t kCodes = 4 * hn::MaxLanes(Quads());
  size_t i = 0;
  for (; i + kCodes <= count; i += kCodes) {
    const auto wide = load_wide<Quads>(codes + i);
    const auto halves = hn::Or(wide, hn::ShiftRight<6>(wide));
    const auto joined = hn::Or(halves, hn::ShiftRight<12>(halves));
    hn::StoreU(hn::TruncateTo(Packed<Quads>(), joined), Packed<Quads>(), packed + i / 4);
  }
  return i;
}

size_t unpack_pairs(const uint8_t* packed, size_t count, uint8_t* codes) {
  constexpr size_t kCodes = 2 * hn::MaxLanes(Pairs());
  const Pairs d;
  size_t i = 0;
  for (; i + kCodes <= count; i += kCodes) {
    const auto joined = hn::PromoteTo(d, hn::LoadU(Packed<Pairs>(), packed + i / 2));
    const auto wide = hn::And(hn::Or(joined, hn::ShiftLeft<4>(joined)), hn::Set(d, 0x0f0f));
    hn::StoreU(hn::BitCast(Bytes<Pairs>(), wide), Bytes<Pairs>(), codes + i);
  }
  return i;
}

size_t unpack_quads(const uint8_t* packed, size_t count, uint8_t* codes) {
  constexpr size_t kCodes = 4 * hn::MaxLanes(Quads());
  const Quads d;
  size_t i = 0;
  for (; i + kCodes <= count; i += kCodes) {
    const auto joined = hn::PromoteTo(d, hn::LoadU(Packed<Quads>(), packed + i / 4));
    const auto halves = hn::Or(joined, hn::ShiftLeft<12>(joined));
    const auto wide = hn::And(hn::Or(halves, hn::ShiftLeft<6>(halves)), hn::Set(d, 0x03030303));
    hn::StoreU(hn::BitCast(Bytes<Quads>(), wide), Bytes<Quads>(), codes + i);
  }
  return i;
}

size_t Pack(uint32_t bits, const uint8_t* codes, size_t count, uint8_t* packed) {
  return bits == 4 ? pack_pairs(codes, count, packed) : pack_quads(codes, count, packed);
}

size_t Unpack(uint32_t bits, const uint8_t* packed, size_t count, uint8_t* codes) {
  return bits == 4 ? unpack_pairs(packed, count, codes) : unpack_quads(packed, count, codes);
}

#endif  // GRADBUS_WITHOUT_VECTORS

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradbus {

HWY_EXPORT(Pack);
HWY_EXPORT(Unpack);

void pack_codes_scalar(uint32_t bits, const uint8_t* codes, size_t count, uint8_t* packed) {
  const size_t per_byte = 8 / bits;
  for (size_t i = 0; i < count; ++i) {
    const auto moved = static_cast<uint8_t>(codes[i] << (i % per_byte * bits));
    packed[i / per_byte] =
        i % per_byte == 0 ? moved : static_cast<uint8_t>(packed[i / per_byte] | moved);
  }
}

void unpack_codes_scalar(uint32_t bits, const uint8_t* packed, size_t count, uint8_t* codes) {
  const size_t per_byte = 8 / bits;
  for (size_t i = 0; i < count; ++i)
    codes[i] = packed[i / per_byte] >> (i % per_byte * bits) & ((1u << bits) - 1);
}

void pack_codes(uint32_t bits, const uint8_t* codes, size_t count, uint8_t* packed) {
  GRADBUS_CHECK(bits == 2 || bits == 4);
  const size_t done = HWY_DYNAMIC_DISPATCH(Pack)(bits, codes, count, packed);
  pack_codes_scalar(bits, codes + done, count - done, packed + packed_bytes(bits, done));
}

void unpack_codes(uint32_t bits, const uint8_t* packed, size_t count, uint8_t* codes) {
  GRADBUS_CHECK(bits == 2 || bits == 4);
  const size_t done = HWY_DYNAMIC_DISPATCH(Unpack)(bits, packed, count, codes);
  unpack_codes_scalar(bits, packed + packed_bytes(bits, done), count - done, codes + done);
}

}  // namespace gradbus
#endif
