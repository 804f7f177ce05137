// Cases for DGC's error feedback and the reductions of compression/cuda, on the processor
// (cuda_error_feedback_test.cc) and on a device.
#pragma once

#include "common/kernels/reduce.h"
#include "compression/cuda/cuda_error_feedback.h"
#include "compression/error_feedback.h"
#include "tests/unit/compression/cuda/cuda_cases.h"

namespace gradbus {

inline constexpr std::string_view kCudaMemorySpecs[] = {"dgc:ratio=0.01",
                                                        "dgc:ratio=0.05,values=fp16,momentum=0.5",
                                                        "dgc:ratio=0.01,masking=no",
                                                        "topk:ratio=0.3,ef=dgc,nesterov=yes",
                                                        "topk:ratio=0.3,ef=dgc,decay=0.5",
                                                        "threshold:value=0.01,ef=dgc",
                                                        "onebit:ef=dgc",
                                                        "int8:ef=dgc,decay=0.9",
                                                        "bf16:ef=dgc,nesterov=yes"};

// A partition of `before` is taken in, encoded and masked on a device or what stands in for one:
// returns what encoding left, and leaves residual and momentum (of the memory) in `partition`.
struct CudaMemoryPartition {
  CudaCase one;
  std::vector<float> momentum;
};

// round(step, input, masks, partition) does that with the rest of `step` and `input` filled in.
template <class Round>
void on_each_cuda_memory_case(std::string_view text, size_t count, CudaValues kind,
                              const Round& round) {
  SCOPED_TRACE(std::string(text) + ", " + std::to_string(count) + " elements, values " +
               std::to_string(static_cast<int>(kind)));
  const auto codec = cuda_case_codec(text, count);
  const ErrorFeedbackOptions options = error_feedback_options(parse_compression(text).value(), 4);
  ErrorFeedback memory(options, count);
  CudaMemoryPartition partition;
  partition.one.residual.assign(count, 0);
  partition.one.has_residual = true;
  partition.momentum.assign(count, 0);
  for (uint64_t step = 1; step <= 4; ++step) {
    SCOPED_TRACE(step);
    // Between good ones; twice huge overflows.
    const bool odd = step == 3 || (step == 2 && kind == CudaValues::kHuge);
    partition.one.gradient = odd ? cuda_case_values(kind, count, count + 3)
                                 : cuda_case_values(CudaValues::kNormal, count, count + step);
    const EncodeInput input = memory.compensate(partition.one.gradient, partition.one.seed, step);
    std::vector<std::byte> payload(codec->payload_bytes_max(count));
    payload.resize(codec->encode(input, payload));
    memory.update(*codec, payload);

    CudaEncode encode = cuda_case_input(*codec, *cuda_codec(*codec), partition.one);
    encode.choice = cuda_choice(*codec, count, step, true);
    encode.decay = options.decay;
    CudaMomentum take = *cuda_momentum(options);
    take.count = encode.count;
    const std::vector<std::byte> left = round(take, encode, options.masking, partition);
    if (testing::Test::HasFatalFailure()) return;
    expect_same_bytes(cuda_case_payload(*codec, encode, left), payload);
    const auto vector_of = [](std::span<const float> span) {
      return std::vector<float>(span.begin(), span.end());
    };
    expect_alike(partition.one.residual, vector_of(memory.residual()));
    expect_alike(partition.momentum, vector_of(memory.momentum()));
    EXPECT_TRUE(std::ranges::all_of(partition.momentum, [](float m) { return std::isfinite(m); }));
  }
}

template <class Round>
void on_each_cuda_memory_case(const Round& round) {
  for (const std::string_view text : kCudaMemorySpecs)
    for (const size_t count : {1, 33, 2049, 6001})
      for (const CudaValues kind : {CudaValues::kNormal, CudaValues::kNan, CudaValues::kHuge}) {
        if (testing::Test::HasFatalFailure()) return;
        on_each_cuda_memory_case(text, count, kind, round);
      }
}

// Bytes of elements of this type: any bits, so NaN, Inf and subnormals among them; of bool 0 and 1.
inline std::vector<std::byte> cuda_rank_buffer(DType dtype, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count * dtype_bytes(dtype));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xff);
  if (dtype == DType::kBool)
    for (std::byte& byte : bytes) byte &= std::byte{1};
  return bytes;
}

inline bool is_nan_of(DType dtype, const std::byte* element) {
  const auto bits = [&]<typename Bits>(Bits) {
    Bits loaded;
    std::memcpy(&loaded, element, sizeof(loaded));
    return loaded;
  };
  switch (dtype) {
    case DType::kF32: return (bits(uint32_t{}) & 0x7fffffff) > 0x7f800000;
    case DType::kF64: return (bits(uint64_t{}) & ~(uint64_t{1} << 63)) > 0x7ff0000000000000;
    case DType::kF16: return (bits(uint16_t{}) & 0x7fff) > 0x7c00;
    case DType::kBF16: return (bits(uint16_t{}) & 0x7fff) > 0x7f80;
    default: return false;
  }
}

inline void expect_alike(DType dtype, const std::vector<std::byte>& got,
                         const std::vector<std::byte>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  const size_t bytes = dtype_bytes(dtype);
  for (size_t at = 0; at < got.size(); at += bytes) {
    if (is_nan_of(dtype, &got[at]) && is_nan_of(dtype, &expected[at])) continue;
    ASSERT_EQ(std::memcmp(&got[at], &expected[at], bytes), 0) << "element " << at / bytes;
  }
}

// run(input, rank buffers): input.sources are the rank buffers in order, its targets the first
// `target_count` of them; what it writes to them is compared.
template <class Run>
void on_each_cuda_reduction(const Run& run) {
  for (uint32_t dtype = 1; dtype <= kDTypeLast; ++dtype)
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax,
                              ReduceOp::kProduct, ReduceOp::kBitAnd, ReduceOp::kBitOr})
      for (const uint32_t sources : {1, 2, 5, 16}) {
        const auto type = static_cast<DType>(dtype);
        if (testing::Test::HasFatalFailure()) return;
        if (!op_fits_dtype(op, type)) continue;
        SCOPED_TRACE(std::string(dtype_name(type)) + " " + std::string(reduce_op_name(op)) +
                     " of " + std::to_string(sources));
        const size_t count = sources == 5 ? 6001 : 33;
        Reduction reduction{.op = op};
        if (op == ReduceOp::kAverage) reduction = {op, sources, 0.5, 3};
        std::vector<std::vector<std::byte>> rank_buffers;
        for (uint32_t s = 0; s < sources; ++s)
          rank_buffers.push_back(cuda_rank_buffer(type, count, s + 1));
        std::vector<const std::byte*> from;
        for (const auto& rank_buffer : rank_buffers) from.push_back(rank_buffer.data());
        std::vector<std::byte> expected(rank_buffers[0].size());
        std::byte* const to = expected.data();
        reduce_scalar(type, reduction, from, {&to, 1}, count);

        CudaReduce input{.prescale = reduction.prescale, .postscale = reduction.postscale};
        input.source_count = sources;
        input.target_count = (sources + 1) / 2;
        input.count = static_cast<uint32_t>(count);
        input.divisor = reduction.divisor;
        input.dtype = dtype;
        input.op = static_cast<uint32_t>(op);
        run(input, rank_buffers);
        for (uint32_t t = 0; t < input.target_count; ++t)
          expect_alike(type, rank_buffers[t], expected);
      }
}

}  // namespace gradbus
