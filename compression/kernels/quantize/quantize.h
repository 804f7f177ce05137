// Converts f32 to codes of one byte and back, with one scale for each bucket of elements.
//
//   code     its value                                    |x|, x = v * inverse
//   levels   code - offset, from -levels to levels        at most levels
//   e4m3     OCP FP8: bias 7, with subnormals             at most 448
//   e5m2     OCP FP8: bias 15, with subnormals            at most 57344
//   natural  bit 7 the sign, k = bits 0 to 6: 2^(k-127),  at most 1
//            or 0 for k = 0
//
// decoded = value * step. x is rounded to nearest, ties to even, or stochastically, with mean x:
//   levels   x is rounded to 2^-15, ties to even, then down from x + dither_bits() / 2^15
//   natural  to one of the two powers of two around x, or to 2^-126 or 0
//
// |x| may exceed its bound by a rounding or, if `clipped`, by any amount. The `_scalar` functions
// are the definition. The others give the same bits on every processor. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compression/kernels/vector/statistics.h"

namespace gradbus {

// A bucket is a multiple of this. So every bucket starts a group of
// compression/kernels/vector/dither.h and, packed in 2, 4 or 8 bits, a byte.
inline constexpr size_t kBucketGranule = 32;

enum class CodeKind : uint8_t { kLevels, kE4m3, kE5m2, kNatural };

struct CodeFormat {
  CodeKind kind = CodeKind::kLevels;
  bool stochastic = false;  // for kLevels; kNatural is always stochastic
  bool clipped = false;     // kLevels, stochastic: larger x are clamped before
  uint32_t bits = 8;        // per code: 2, 4 or 8
  uint32_t levels = 127;    // kLevels: less than offset()

  // 2^(bits-1): even, so that ties to even among codes are ties to even among levels.
  uint32_t offset() const { return 1u << (bits - 1); }
};

// Decoding multiplies by `step`. A step of NaN means that the bucket is not finite: its codes are 0
// and its residual does not change. For levels, other steps are 0 or at least kStepMin. So 2^15
// times the inverse is a finite number, and 2^-15 times the step is a normal one.
inline constexpr float kStepMin = 0x1p-110F;

// Has no default values, because 64 of them would be set for each block.
struct BucketScale {
  float step;
  float inverse;
};

// A run of elements that starts at a bucket and contains whole buckets (the last one may be cut
// short), or a part of a single bucket. `first` is the index of values[0] in the partition, a
// multiple of 32.
struct QuantizePiece {
  const float* values = nullptr;
  size_t count = 0;
  size_t bucket = kBucketGranule;
  const BucketScale* scales = nullptr;  // one per bucket
  uint64_t seed = 0;
  uint32_t first = 0;
  uint8_t* codes = nullptr;   // count bytes
  float* residual = nullptr;  // gets values - decoded, unless null
  // Memory of `count` elements to prefetch meanwhile, because arithmetic is half of the time.
  const float* soon[2] = {nullptr, nullptr};
};

// Statistics of the elements that are encoded next: as many as the piece has, in equal buckets.
struct NextBlockStatistics {
  StatisticsRun run;
  uint32_t* largest = nullptr;
  double* squares = nullptr;
};

// factors: step * scale of each bucket. to = or += value * factor.
struct DequantizePiece {
  const uint8_t* codes = nullptr;
  size_t count = 0;
  size_t bucket = kBucketGranule;
  const float* factors = nullptr;
  float* to = nullptr;
  bool add = false;
};

void quantize(const CodeFormat& format, const QuantizePiece& piece);
// Also runs take_statistics(ahead.run, ahead.largest, ahead.squares) in the same loop, because
// encoding is arithmetic and statistics wait for memory. The count is a multiple of kBucketGranule.
// The run has a gradient, and something kept if the piece has a residual.
void quantize(const CodeFormat& format, const QuantizePiece& piece,
              const NextBlockStatistics& ahead);
void quantize_scalar(const CodeFormat& format, const QuantizePiece& piece);

void dequantize(const CodeFormat& format, const DequantizePiece& piece);
void dequantize_scalar(const CodeFormat& format, const DequantizePiece& piece);

}  // namespace gradbus
