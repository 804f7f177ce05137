// Memory throughput of reduce(), beside a plain loop that reads and writes the same bytes. Bytes
// per second count each source read and each target written once. Run a release build.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "common/kernels/adasum.h"
#include "common/kernels/reduce.h"
#include "common/kernels/reduce_targets.h"

namespace {

using gradbus::DType;
using gradbus::ReduceOp;
using gradbus::Reduction;

// Rank buffers of several ranks, aligned and staggered as in the shared arena (proto/shm_layout.h),
// first touched before timing.
class RankBuffers {
 public:
  RankBuffers(size_t ranks, size_t bytes)
      : storage_(((bytes + 4095) / 4096 * 4096 + 640) * ranks + 4096) {
    const size_t stride = (bytes + 4095) / 4096 * 4096 + 640;
    void* base = storage_.data();
    size_t space = storage_.size();
    std::align(4096, stride * ranks, base, space);
    for (size_t r = 0; r < ranks; ++r) {
      mutable_.push_back(static_cast<std::byte*>(base) + r * stride);
      constant_.push_back(mutable_.back());
    }
  }
  const std::vector<const std::byte*>& sources() const { return constant_; }
  const std::vector<std::byte*>& targets() const { return mutable_; }

 private:
  std::vector<std::byte> storage_;
  std::vector<std::byte*> mutable_;
  std::vector<const std::byte*> constant_;
};

void count_bytes(benchmark::State& state, size_t streams) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(0) *
                          static_cast<int64_t>(streams));
}

void reduce_as(benchmark::State& state, DType dtype, size_t ranks, const Reduction& how) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const RankBuffers rank_buffers(ranks, bytes);
  for (auto _ : state) {
    gradbus::reduce(dtype, how, rank_buffers.sources(), rank_buffers.targets(),
                    bytes / gradbus::dtype_bytes(dtype));
    benchmark::ClobberMemory();
  }
  count_bytes(state, 2 * ranks);
}

void reduce_in_place(benchmark::State& state, DType dtype, size_t ranks) {
  reduce_as(state, dtype, ranks, {.divisor = static_cast<uint32_t>(ranks)});
}

void adasum_in_place(benchmark::State& state, DType dtype) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const RankBuffers rank_buffers(2, bytes);
  for (auto _ : state) {
    gradbus::adasum_pair(dtype, rank_buffers.sources()[0], rank_buffers.sources()[1],
                         rank_buffers.targets()[0], bytes / gradbus::dtype_bytes(dtype));
    benchmark::ClobberMemory();
  }
  count_bytes(state, 5);
}

#define GRADBUS_NAIVE __attribute__((optimize("O3"), target("avx2")))

// What the compiler makes of the naive loops.
GRADBUS_NAIVE void plain_pair(float* const* v, size_t count) {
  float *a = v[0], *b = v[1];
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) a[i] = b[i] = (a[i] + b[i]) * 0.5f;
}

GRADBUS_NAIVE void plain_four(float* const* v, size_t count) {
  float *a = v[0], *b = v[1], *c = v[2], *d = v[3];
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) {
    a[i] = b[i] = c[i] = d[i] = (a[i] + b[i] + c[i] + d[i]) * 0.25f;
  }
}

void plain_loop(benchmark::State& state, void (*loop)(float* const*, size_t), size_t ranks) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const RankBuffers rank_buffers(ranks, bytes);
  std::vector<float*> vectors;
  for (std::byte* rank_buffer : rank_buffers.targets())
    vectors.push_back(reinterpret_cast<float*>(rank_buffer));
  for (auto _ : state) {
    loop(vectors.data(), bytes / sizeof(float));
    benchmark::ClobberMemory();
  }
  count_bytes(state, 2 * ranks);
}

void sizes(benchmark::internal::Benchmark* bench) {
  for (const int64_t bytes : {64 << 10, 1 << 20, 64 << 20}) bench->Arg(bytes);
}

BENCHMARK_CAPTURE(plain_loop, f32_2_to_2, plain_pair, 2)->Apply(sizes);
BENCHMARK_CAPTURE(plain_loop, f32_4_to_4, plain_four, 4)->Apply(sizes);
BENCHMARK_CAPTURE(reduce_in_place, f32_2_to_2, DType::kF32, 2)->Apply(sizes);
BENCHMARK_CAPTURE(reduce_in_place, f32_4_to_4, DType::kF32, 4)->Apply(sizes);
BENCHMARK_CAPTURE(reduce_in_place, f32_8_to_8, DType::kF32, 8)->Apply(sizes);
BENCHMARK_CAPTURE(reduce_in_place, f32_16_to_16, DType::kF32, 16)->Apply(sizes);
BENCHMARK_CAPTURE(reduce_in_place, f32_64_to_64, DType::kF32, 64)->Apply(sizes);
BENCHMARK_CAPTURE(reduce_in_place, f16_2_to_2, DType::kF16, 2)->Apply(sizes);
BENCHMARK_CAPTURE(reduce_in_place, bf16_2_to_2, DType::kBF16, 2)->Apply(sizes);
BENCHMARK_CAPTURE(reduce_in_place, i32_2_to_2, DType::kI32, 2)->Apply(sizes);
BENCHMARK_CAPTURE(reduce_in_place, i64_2_to_2, DType::kI64, 2)->Apply(sizes);
BENCHMARK_CAPTURE(reduce_in_place, i8_2_to_2, DType::kI8, 2)->Apply(sizes);
BENCHMARK_CAPTURE(reduce_in_place, u16_2_to_2, DType::kU16, 2)->Apply(sizes);

// The other operations and factors, two rank buffers onto both.
BENCHMARK_CAPTURE(reduce_as, f32_sum, DType::kF32, 2, Reduction{})->Apply(sizes);
BENCHMARK_CAPTURE(reduce_as, f32_sum_prescale_postscale, DType::kF32, 2,
                  Reduction{.prescale = 0.3, .postscale = 0.7})
    ->Apply(sizes);
BENCHMARK_CAPTURE(reduce_as, f32_min, DType::kF32, 2, Reduction{ReduceOp::kMin})->Apply(sizes);
BENCHMARK_CAPTURE(reduce_as, f32_max, DType::kF32, 2, Reduction{ReduceOp::kMax})->Apply(sizes);
BENCHMARK_CAPTURE(reduce_as, f16_max, DType::kF16, 2, Reduction{ReduceOp::kMax})->Apply(sizes);
BENCHMARK_CAPTURE(reduce_as, f32_product, DType::kF32, 2, Reduction{ReduceOp::kProduct})
    ->Apply(sizes);
BENCHMARK_CAPTURE(reduce_as, i64_product, DType::kI64, 2, Reduction{ReduceOp::kProduct})
    ->Apply(sizes);
BENCHMARK_CAPTURE(reduce_as, u8_product, DType::kU8, 2, Reduction{ReduceOp::kProduct})
    ->Apply(sizes);
BENCHMARK_CAPTURE(reduce_as, u8_or, DType::kU8, 2, Reduction{ReduceOp::kBitOr})->Apply(sizes);
// Two passes: four vectors read, one written.
BENCHMARK_CAPTURE(adasum_in_place, f32, DType::kF32)->Apply(sizes);
BENCHMARK_CAPTURE(adasum_in_place, f64, DType::kF64)->Apply(sizes);
BENCHMARK_CAPTURE(adasum_in_place, bf16, DType::kBF16)->Apply(sizes);

}  // namespace

BENCHMARK_MAIN();
