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

// What many threads do to one word, in whatever order: it ends up the same. Only integers, since
// sums of floats depend on their order.
GRADBUS_BOTH inline void add_to(uint32_t& sum, uint32_t number) {
#ifdef __CUDA_ARCH__
  atomicAdd(&sum, number);
#else
  sum += number;
#endif
}
GRADBUS_BOTH inline void lower_to(uint32_t& least, uint32_t number) {
#ifdef __CUDA_ARCH__
  atomicMin(&least, number);
#else
  least = smaller(least, number);
#endif
}
// Returns the word as it was.
GRADBUS_BOTH inline uint32_t set_bits(uint32_t& word, uint32_t bits) {
#ifdef __CUDA_ARCH__
  return atomicOr(&word, bits);
#else
  const uint32_t before = word;
  word |= bits;
  return before;
#endif
}

}  // namespace gradbus
