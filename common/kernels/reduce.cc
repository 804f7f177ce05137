// Compiles reduce_inl.h for each SIMD target and chooses one at run time. Any thread.
//
// The choice is made with the compiler's own processor test and not with HWY_DYNAMIC_DISPATCH,
// because that needs libhwy.so (Debian has no static one) and libgradbus.so may need only libc.
#include "common/kernels/reduce.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/check.h"
#include "common/kernels/reduce_targets.h"

// SSSE3 alone is a processor from before 2008; it takes the scalar form. SVE vectors have no size
// at compile time, so they cannot be members; Arm takes NEON. Highway's debug assertions call into
// libhwy, and none guards anything here.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define HWY_IS_DEBUG_BUILD 0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/kernels/reduce.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "common/kernels/reduce_inl.h"
#endif

#if HWY_ONCE
namespace gradbus {
namespace {

using Supported = bool (*)();

void run_scalar(DType dtype, const std::byte* const* sources, size_t source_count,
                std::byte* const* targets, size_t target_count, size_t count, uint32_t divisor) {
  reduce_scalar(dtype, {sources, source_count}, {targets, target_count}, count, divisor);
}

bool always() { return true; }

#if HWY_ARCH_X86
// What HWY_TARGET_STR_* lets the compiler use in the target's code.
bool has_sse4() {
  return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") &&
         __builtin_cpu_supports("aes");
}

bool has_avx2() {
  return has_sse4() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
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

constexpr Candidate kCandidates[] = {
#if HWY_TARGETS & HWY_AVX3
    {{"avx512", N_AVX3::reduce_on_target}, has_avx512},
#endif
#if HWY_TARGETS & HWY_AVX2
    {{"avx2", N_AVX2::reduce_on_target}, has_avx2},
#endif
#if HWY_TARGETS & HWY_SSE4
    {{"sse4", N_SSE4::reduce_on_target}, has_sse4},
#endif
#if HWY_STATIC_TARGET == HWY_NEON
    {{"neon", N_NEON::reduce_on_target}, always},
#endif
    {{"scalar", run_scalar}, always},
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

std::span<const ReduceTarget> reduce_targets() {
  static const Chosen chosen;
  return {chosen.targets.data(), chosen.count};
}

void reduce(DType dtype, std::span<const std::byte* const> sources,
            std::span<std::byte* const> targets, size_t count, uint32_t divisor) {
  GRADBUS_CHECK(!sources.empty() && !targets.empty() && divisor > 0);
  GRADBUS_CHECK(is_dtype(static_cast<uint32_t>(dtype)));
  if (sources.size() == 1 && divisor == 1) {
    return copy_to_targets(sources[0], targets, count * dtype_bytes(dtype));
  }
  reduce_targets().front().run(dtype, sources.data(), sources.size(), targets.data(),
                               targets.size(), count, divisor);
}

}  // namespace gradbus
#endif  // HWY_ONCE
