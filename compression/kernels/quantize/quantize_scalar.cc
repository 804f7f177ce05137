// The definition of quantize() and dequantize(). They also use it for the last elements.
#include <algorithm>
#include <bit>
#include <cmath>

#include "compression/kernels/quantize/quantize.h"
#include "compression/kernels/vector/dither.h"

namespace gradbus {
namespace {

struct Fp8 {
  int mantissa_bits;
  int exponent_min;  // the smallest exponent of normal numbers
};
constexpr Fp8 kE4m3{3, -6};
constexpr Fp8 kE5m2{2, -14};

const Fp8& fp8_of(CodeKind kind) { return kind == CodeKind::kE4m3 ? kE4m3 : kE5m2; }

uint8_t level_code(const CodeFormat& format, float x, uint32_t random) {
  const auto limit = static_cast<float>(format.levels);
  const float clamped = std::min(std::max(x, -limit), limit);
  const auto offset = static_cast<long>(format.offset());
  if (!format.stochastic) return static_cast<uint8_t>(std::lrint(clamped) + offset);
  const long parts = std::lrint(clamped * (1 << kDitherBits)) + (offset << kDitherBits);
  return static_cast<uint8_t>((parts + static_cast<long>(random)) >> kDitherBits);
}

// A magnitude is n steps of 2^(exponent - mantissa_bits). Subnormals have the smallest exponent.
uint8_t fp8_code(const Fp8& fp8, float x) {
  const float magnitude = std::fabs(x);
  const int exponent = std::max(std::ilogb(magnitude), fp8.exponent_min);
  const long steps = std::lrint(std::ldexp(magnitude, fp8.mantissa_bits - exponent));
  const long code = ((exponent - fp8.exponent_min) << fp8.mantissa_bits) + steps;
  return static_cast<uint8_t>(code | (std::signbit(x) ? 0x80 : 0));
}

float fp8_value(const Fp8& fp8, uint8_t code) {
  const int field = (code & 0x7f) >> fp8.mantissa_bits;
  const int mantissa = code & ((1 << fp8.mantissa_bits) - 1);
  const int whole = field == 0 ? mantissa : mantissa + (1 << fp8.mantissa_bits);
  const int exponent = fp8.exponent_min + std::max(field - 1, 0);
  const float magnitude = std::ldexp(static_cast<float>(whole), exponent - fp8.mantissa_bits);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

// 15 random bits and a half of the last one carry into the exponent with the probability that the
// mantissa gives. The exponent field is the code. x below 2^-126 is a subnormal: its field is 0,
// and its mantissa gives the probability.
uint8_t natural_code(float x, uint32_t random) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits & 0x7fffffff) + (random << 8) + 128;
  return static_cast<uint8_t>((rounded >> 23) | ((bits >> 24) & 0x80));
}

float natural_value(uint8_t code) {
  const uint32_t bits = code;
  return std::bit_cast<float>((bits & 0x7f) << 23 | (bits & 0x80) << 24);
}

uint8_t code_of(const CodeFormat& format, float x, uint32_t random) {
  if (format.kind == CodeKind::kLevels) return level_code(format, x, random);
  if (format.kind == CodeKind::kNatural) return natural_code(x, random);
  return fp8_code(fp8_of(format.kind), x);
}

float value_of(const CodeFormat& format, uint8_t code) {
  if (format.kind == CodeKind::kLevels)
    return static_cast<float>(static_cast<int>(code) - static_cast<int>(format.offset()));
  return format.kind == CodeKind::kNatural ? natural_value(code)
                                           : fp8_value(fp8_of(format.kind), code);
}

}  // namespace

void quantize_scalar(const CodeFormat& format, const QuantizePiece& piece) {
  const DitherStream stream = dither_stream(piece.seed);
  for (size_t i = 0; i < piece.count; ++i) {
    const BucketScale scale = piece.scales[i / piece.bucket];
    const uint32_t random = dither_bits(stream, static_cast<uint32_t>(piece.first + i));
    const bool finite = std::isfinite(scale.step);
    // A value may have changed since its bucket's scale was made. Any code is right for it.
    const float scaled = finite ? piece.values[i] * scale.inverse : 0;
    const float x = std::isfinite(scaled) ? scaled : 0;
    const uint8_t code = finite ? code_of(format, x, random) : 0;
    piece.codes[i] = code;
    if (finite && piece.residual != nullptr)
      piece.residual[i] = piece.values[i] - value_of(format, code) * scale.step;
  }
}

void dequantize_scalar(const CodeFormat& format, const DequantizePiece& piece) {
  for (size_t i = 0; i < piece.count; ++i) {
    const float decoded = value_of(format, piece.codes[i]) * piece.factors[i / piece.bucket];
    piece.to[i] = piece.add ? piece.to[i] + decoded : decoded;
  }
}

}  // namespace gradbus
