// Compiles reduce_inl.h and adasum_inl.h for each SIMD target and chooses one at run time. Any
// thread.
//
// The choice uses the compiler's processor test. HWY_DYNAMIC_DISPATCH would need libhwy.so (Debian
// has no static one), but libgradbus.so may need only libc.
#include "common/kernels/reduce.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/check.h"
#include "common/kernels/reduce_targets.h"

// Processors with SSSE3 but without SSE4 are from before 2008; they use the scalar form. SVE
// vectors have no size at compile time, so they cannot be members; Arm uses NEON. Highway's debug
// assertions call into libhwy, and none of them guards anything here.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
#define HWY_IS_DEBUG_BUILD 0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/kernels/reduce.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "common/kernels/adasum_inl.h"
#include "common/kernels/reduce_inl.h"
#endif

#if HWY_ONCE
#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace gradbus {
namespace {

using Supported = bool (*)();

bool always() { return true; }

#if HWY_ARCH_X86
// Clang's __builtin_cpu_supports does not know "f16c". Its "avx2" already checks that the system
// saves the AVX registers.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

// The instruction sets that HWY_TARGET_STR_* allows the compiler to use for the target.
bool has_sse4() {
  return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") &&
         __builtin_cpu_supports("aes");
}

bool has_avx2() {
  return has_sse4() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma") && has_f16c();
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
}
#endif

struct Candidate {
  ReduceTarget target;
  Supported supported;
};

#define GRADBUS_KERNELS(target) \
  target::reduce_on_target, target::dots_on_target, target::blend_on_target

constexpr Candidate kCandidates[] = {
#if HWY_TARGETS & HWY_AVX3
    {{"avx512", GRADBUS_KERNELS(N_AVX3)}, has_avx512},
#endif
#if HWY_TARGETS & HWY_AVX2
    {{"avx2", GRADBUS_KERNELS(N_AVX2)}, has_avx2},
#endif
#if HWY_TARGETS & HWY_SSE4
    {{"sse4", GRADBUS_KERNELS(N_SSE4)}, has_sse4},
#endif
#if HWY_STATIC_TARGET == HWY_NEON
    {{"neon", GRADBUS_KERNELS(N_NEON)}, always},
#endif
    {{"scalar", reduce_one_by_one, adasum_dots_scalar, adasum_blend_scalar}, always},
};

struct Chosen {
  std::array<ReduceTarget, std::size(kCandidates)> targets{};
  size_t count = 0;

  Chosen() {
    for (const Candidate& candidate : kCandidates) {
      if (candidate.supported()) targets[count++] = candidate.target;
    }
  }
};

void copy_to_targets(const std::byte* source, std::span<std::byte* const> targets, size_t bytes) {
  for (std::byte* target : targets) {
    if (target != source && bytes > 0) std::memcpy(target, source, bytes);
  }
}

}  // namespace

void reduce_one_by_one(DType dtype, const Reduction& reduction, const std::byte* const* sources,
                       size_t source_count, std::byte* const* targets, size_t target_count,
                       size_t count) {
  reduce_scalar(dtype, reduction, {sources, source_count}, {targets, target_count}, count);
}

std::span<const ReduceTarget> reduce_targets() {
  static const Chosen chosen;
  return {chosen.targets.data(), chosen.count};
}

void reduce(DType dtype, const Reduction& reduction, std::span<const std::byte* const> sources,
            std::span<std::byte* const> targets, size_t count) {
  GRADBUS_CHECK(!sources.empty() && !targets.empty() && reduction.divisor > 0);
  GRADBUS_CHECK(is_dtype(static_cast<uint32_t>(dtype)) && op_fits_dtype(reduction.op, dtype));
  GRADBUS_CHECK(reduction.op != ReduceOp::kNone && reduction.op != ReduceOp::kAdasum);
  if (sources.size() == 1 && reduction.copies()) {
    return copy_to_targets(sources[0], targets, count * dtype_bytes(dtype));
  }
  reduce_targets().front().run(dtype, reduction, sources.data(), sources.size(), targets.data(),
                               targets.size(), count);
}

}  // namespace gradbus
#endif  // HWY_ONCE
