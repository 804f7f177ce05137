// What the processor and CUDA devices compile alike. Kernels here are templates over plain data; a
// device runs them (plugin), and so does the processor in tests, which is how their bytes are
// compared with the codecs' where there is no GPU.
//
// constexpr functions of other headers (half.h, dither.h, lanes.h) run on a device as they are:
// nvcc is told --expt-relaxed-constexpr. It is told --fmad=false too, because a multiplication and
// an addition fused there and not here give other bits.
#pragma once

#include <bit>
#include <cstdint>

#ifdef __CUDACC__
#define GRADBUS_BOTH __host__ __device__
#else
#define GRADBUS_BOTH
#endif

namespace gradbus {

GRADBUS_BOTH inline uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
GRADBUS_BOTH inline float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }
GRADBUS_BOTH inline bool is_finite(float value) {
  return (bits_of(value) & 0x7f800000) != 0x7f800000;
}

template <typename T>
GRADBUS_BOTH constexpr T smaller(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
GRADBUS_BOTH constexpr T larger(T a, T b) {
  return a < b ? b : a;
}
GRADBUS_BOTH constexpr uint32_t parts_of(uint32_t count, uint32_t part) {
  return count / part + (count % part != 0 ? 1 : 0);
}

}  // namespace gradbus
