// What powersgd and blocktopk are tried with on a device or what stands in for one: two agents that
// bring the same, three exchanges.
#pragma once

#include "common/kernels/reduce.h"
#include "compression/codecs/blocktopk.h"
#include "compression/codecs/powersgd.h"
#include "compression/cuda/cuda_linear.h"
#include "tests/unit/compression/cuda/cuda_cases.h"

namespace gradbus::cuda_linear {
using Floats = std::vector<float>;

constexpr uint32_t kAgents = 2;

template <class Codec>
std::unique_ptr<LinearCodec> linear(std::string_view text, const CodecShape& shape) {
  const Result<CompressionSpec> spec = parse_compression(text);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  auto made = spec.value().codec->make_linear(spec.value().options, shape);
  EXPECT_NE(dynamic_cast<Codec*>(made.get()), nullptr);
  return made;
}

// The codec's exchange with an agent that sends the same; `other` gets what a device does.
struct Partition {
  Floats gradient;
  Floats residual;
  float decay = 0.75F;

  EncodeInput input() { return {.gradient = gradient, .residual = residual, .decay = decay}; }
  CudaPartition cuda() {
    return {gradient.data(), residual.data(), nullptr, decay,
            static_cast<uint32_t>(gradient.size())};
  }
};

inline std::vector<std::byte> doubled(DType dtype, std::span<const std::byte> vector) {
  std::vector<std::byte> sum(vector.begin(), vector.end());
  const std::byte* const from[] = {vector.data(), vector.data()};
  std::byte* const to = sum.data();
  reduce_scalar(dtype, {}, from, {&to, 1}, vector.size() / dtype_bytes(dtype));
  return sum;
}

inline Floats floats_of(std::span<const std::byte> bytes) {
  Floats values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Q without what is behind its columns.
inline Floats packed_q(const PowerSgd& codec) {
  Floats q;
  for (size_t k = 0; k < codec.rank(); ++k) {
    const auto column = codec.q().subspan(k * codec.stride(), codec.columns());
    q.insert(q.end(), column.begin(), column.end());
  }
  return q;
}

template <class Start>
void expect_low_rank(CodecShape shape, CudaValues kind, const Start& start) {
  SCOPED_TRACE(std::to_string(shape.count_max) + " elements, " + std::to_string(shape.columns) +
               " columns, values " + std::to_string(static_cast<int>(kind)));
  const auto made = linear<PowerSgd>("powersgd:rank=3", shape);
  auto& codec = dynamic_cast<PowerSgd&>(*made);
  Partition partition{{}, cuda_case_values(CudaValues::kNormal, shape.count_max, 5)};
  for (uint64_t round = 1; round <= 3; ++round) {
    partition.gradient = cuda_case_values(kind, shape.count_max, round);
    Partition device = partition;
    std::vector<std::byte> vectors[2];
    CudaLowRank input{.partition = device.cuda()};
    input.rows = static_cast<uint32_t>(codec.rows());
    input.columns = static_cast<uint32_t>(codec.columns());
    input.rank = static_cast<uint32_t>(codec.rank());
    Floats p, q;
    for (const uint32_t part : {0u, 1u}) {
      vectors[part].resize(codec.vector_elements(part) * sizeof(float));
      codec.project(part, partition.input(), round,
                    part == 0 ? std::vector<std::byte>() : doubled(DType::kF32, vectors[0]),
                    vectors[part]);
      if (part == 0) q = packed_q(codec);
      Floats out(codec.vector_elements(part), 7);
      p.assign(codec.p().begin(), codec.p().end());
      input.part = static_cast<CudaRankPart>(part);
      input.p = p.data();
      input.q = q.data();
      input.out = out.data();
      ASSERT_TRUE(is_possible(input));
      const bool finite =
          std::ranges::all_of(floats_of(vectors[part]), [](float f) { return std::isfinite(f); });
      if (part == 1 && !finite) continue;  // the host says NaN itself
      start(input);
      expect_alike(out, floats_of(vectors[part]));
    }
    Floats values(shape.count_max);
    Floats got(shape.count_max, 7);
    codec.finish(partition.input(), round, kAgents, doubled(DType::kF32, vectors[1]), 0.5F, values);
    q = packed_q(codec);
    input.part = CudaRankPart::kFinish;
    input.q = q.data();
    input.out = got.data();
    input.factor = 0.5F * kAgents;
    start(input);
    expect_alike(got, values);
    expect_alike(device.residual, partition.residual);
  }
}

template <class Start>
void expect_blocks(std::string_view text, size_t count, CudaValues kind, const Start& start) {
  SCOPED_TRACE(std::string(text) + ", " + std::to_string(count) + " elements, values " +
               std::to_string(static_cast<int>(kind)));
  const auto made = linear<BlockTopK>(text, {.count_max = count});
  auto& codec = dynamic_cast<BlockTopK&>(*made);
  Partition partition{{}, cuda_case_values(CudaValues::kNormal, count, 5)};
  for (uint64_t round = 1; round <= 3; ++round) {
    partition.gradient = cuda_case_values(kind, count, round);
    Partition device = partition;
    CudaBlocks input{.partition = device.cuda()};
    input.block = static_cast<uint32_t>(codec.block());
    input.dtype = static_cast<uint32_t>(codec.dtype(1));
    std::vector<std::byte> norms(codec.vector_elements(0) * sizeof(float));
    codec.project(0, partition.input(), round, {}, norms);
    Floats out(codec.vector_elements(0), 7);
    input.out = out.data();
    ASSERT_TRUE(is_possible(input));
    start(input);
    expect_alike(out, floats_of(norms));

    const DType dtype = codec.dtype(1);
    std::vector<std::byte> sent(codec.vector_elements(1) * dtype_bytes(dtype));
    codec.project(1, partition.input(), round, doubled(DType::kF32, norms), sent);
    std::vector<uint64_t> gathered(sent.size() / 8 + 1);
    input.part = CudaBlocksPart::kGather;
    input.chosen = static_cast<uint32_t>(codec.chosen().size());
    input.blocks = codec.chosen().data();
    input.out = gathered.data();
    start(input);
    const auto* bytes = reinterpret_cast<const std::byte*>(gathered.data());
    expect_same_bytes({bytes, bytes + sent.size()}, sent);

    const std::vector<std::byte> sum = doubled(dtype, sent);
    Floats values(count);
    Floats got(count, 7);
    codec.finish(partition.input(), round, kAgents, sum, 0.5F, values);
    std::vector<uint32_t> places(codec.vector_elements(0), 0);
    for (uint32_t i = 0; i < input.chosen; ++i) places[codec.chosen()[i]] = i + 1;
    input.part = CudaBlocksPart::kFinish;
    input.places = places.data();
    input.sum = sum.data();
    input.out = got.data();
    input.scale = 0.5F;
    input.finite = codec.finite() ? 1 : 0;
    start(input);
    expect_alike(got, values);
    expect_alike(device.residual, partition.residual);
  }
}

// start(input) does what `input` says and returns when it is done.
template <class Start>
void on_each_low_rank(const Start& start) {
  for (const CodecShape& shape :
       {CodecShape{.count_max = 1}, CodecShape{.count_max = 100}, CodecShape{.count_max = 6001},
        CodecShape{.count_max = 5000, .columns = 300},
        CodecShape{.count_max = 40 * 33, .columns = 33}})
    for (const CudaValues kind : {CudaValues::kNormal, CudaValues::kZeros, CudaValues::kNan})
      expect_low_rank(shape, kind, start);
}

template <class Start>
void on_each_blocks(const Start& start) {
  for (const std::string_view text :
       {"blocktopk", "blocktopk:ratio=0.3,block=32", "blocktopk:block=5000,ratio=0.5",
        "blocktopk:ratio=0.3,block=64,values=fp16"})
    for (const size_t count : {1, 33, 2049, 10007})
      for (const CudaValues kind : {CudaValues::kNormal, CudaValues::kTies, CudaValues::kNan,
                                    CudaValues::kHuge, CudaValues::kInfinity})
        expect_blocks(text, count, kind, start);
}

}  // namespace gradbus::cuda_linear
