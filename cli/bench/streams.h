// What the memory of this machine allows: streaming rates of a few loops over arrays that no cache
// holds. Starts threads, one per core; the caller's affinity decides which cores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace gradbus {

// A loop over two arrays of `floats` elements. The result only keeps the compiler from leaving
// work out.
struct StreamKernel {
  std::string_view name;
  double traffic;  // bytes read and written per byte of one array
  float (*run)(float* a, float* b, size_t floats);
};

constexpr size_t kStreamKernels = 4;
// read (a), add (a += b), copy (a = b) and mix_2r2w (a = b = a + b: two ranks reduced in place).
// `floats` is a multiple of 16, arrays are aligned to 64 bytes.
const StreamKernel (&stream_kernels())[kStreamKernels];

// Of the first core's cache of a level, as the kernel has it; 0: unknown.
uint64_t cache_bytes(int level);

// Bytes of each of the two arrays, for all threads together: twice the last cache, within bounds.
uint64_t stream_array_bytes();

// The cores that this thread may use.
std::vector<int> allowed_cores();

// GB/s of traffic, best pass of several, per kernel; one thread on each of `cores`. GB-S201 when
// there is no memory for the arrays.
Result<std::vector<double>> measure_streams(const std::vector<int>& cores, uint64_t array_bytes);

// This thread alone on that core; where the system does not allow it, anywhere.
void pin_to(int core);

}  // namespace gradbus
