// What kernels of compression/cuda are tried with, on the processor (cuda_works_test.cc) and on a
// device: every codec that has kernels, lengths around every boundary, inputs that are odd.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "compression/cuda/cuda_codec.h"
#include "compression/cuda/cuda_selection.h"
#include "compression/registry.h"

namespace gradbus {

inline constexpr std::string_view kCudaSpecs[] = {"none",
                                                  "fp16",
                                                  "bf16",
                                                  "fp8",
                                                  "fp8:format=e5m2,block=100",
                                                  "int8",
                                                  "int8:rounding=stochastic,block=4097",
                                                  "int4",
                                                  "int4:rounding=stochastic,block=32",
                                                  "qsgd",
                                                  "qsgd:levels=1,bucket=0",
                                                  "qsgd:levels=7,norm=max,bucket=3000",
                                                  "terngrad",
                                                  "terngrad:bound=0,bucket=0",
                                                  "terngrad:bound=1,bucket=5000",
                                                  "natural",
                                                  "natural:bucket=4096",
                                                  "signsgd",
                                                  "signsgd:step=0.25",
                                                  "efsignsgd",
                                                  "efsignsgd:block=0",
                                                  "efsignsgd:block=100",
                                                  "onebit",
                                                  "onebit:block=0",
                                                  "onebit:block=6000",
                                                  "signum",
                                                  "signum:beta=0.5,step=0.125",
                                                  "topk",
                                                  "topk:ratio=0.3,values=fp16",
                                                  "topk:ratio=1",
                                                  "threshold:value=0.01",
                                                  "threshold:value=0,values=bf16",
                                                  "dgc:ratio=0.01",
                                                  "dgc:ratio=0.05,sample=0.1,values=fp16",
                                                  "dgc:ratio=0.01,warmup=8,c=0.6",
                                                  "randk",
                                                  "randk:ratio=0.5,scale=yes,values=bf16",
                                                  "randk:ratio=0.8,scale=yes"};

// Around words, granules, pieces, buckets and blocks.
inline constexpr size_t kCudaCounts[] = {0,   1,   2,    31,   32,   33,   63,   64,   65,   100,
                                         255, 256, 1000, 2047, 2048, 2049, 4096, 6001, 10007};

enum class CudaValues { kNormal, kWide, kZeros, kNan, kInfinity, kHuge, kLarge, kTiny, kTies };
inline constexpr CudaValues kCudaValues[] = {
    CudaValues::kNormal, CudaValues::kWide,     CudaValues::kZeros,
    CudaValues::kNan,    CudaValues::kInfinity, CudaValues::kHuge,
    CudaValues::kLarge,  CudaValues::kTiny,     CudaValues::kTies};

inline std::unique_ptr<Codec> cuda_case_codec(std::string_view text, size_t count) {
  Result<CompressionSpec> spec = parse_compression(text);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  return make_codec(spec.value(), {.count_max = count});
}

inline std::vector<float> cuda_case_values(CudaValues kind, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 0.01F);
  std::uniform_int_distribution<int> exponent(-140, 100);
  std::vector<float> values(count);
  for (float& value : values) {
    value = normal(random);
    if (kind == CudaValues::kWide) value = std::ldexp(value, exponent(random));
    if (kind == CudaValues::kZeros) value = random() % 2 == 0 ? 0.0F : -0.0F;
    if (kind == CudaValues::kTiny) value = std::ldexp(value, -130);
    if (kind == CudaValues::kTies) value = std::copysign(static_cast<float>(random() % 4), value);
  }
  if (count == 0) return values;
  const size_t at = random() % count;
  if (kind == CudaValues::kNan) values[at] = std::bit_cast<float>(0xffc12345);
  if (kind == CudaValues::kInfinity) values[at] = -std::numeric_limits<float>::infinity();
  if (kind == CudaValues::kHuge) values[at] = std::numeric_limits<float>::max();
  if (kind == CudaValues::kLarge) values[at] = 0x1.8p126F;  // the inverse of a step is subnormal
  return values;
}

// One call of encode(), what it was given and what it left.
struct CudaCase {
  std::vector<float> gradient = {};
  std::vector<float> residual = {};
  bool has_gradient = true;
  bool has_residual = false;
  float decay = 0.75F;
  uint64_t seed = 0x0123456789abcdef;
  std::vector<float> momentum = {};  // of the codec
  std::vector<std::byte> payload = {};
};

inline CudaCase cuda_case(CudaValues kind, size_t count, bool has_gradient, bool has_residual) {
  CudaCase one;
  one.has_gradient = has_gradient;
  one.has_residual = has_residual;
  one.gradient = cuda_case_values(kind, count, count + 1);
  // A residual is always finite.
  const bool odd = kind == CudaValues::kNan || kind == CudaValues::kInfinity;
  one.residual = cuda_case_values(odd ? CudaValues::kNormal : kind, count, count + 2);
  one.momentum = cuda_case_values(odd ? CudaValues::kNormal : kind, count, count + 3);
  if (!has_gradient && count % 2 != 0) one.decay = 1;  // v is there already
  return one;
}

// What encoding is told of it, but for what lies in memory of the device.
inline CudaEncode cuda_case_input(const Codec& codec, const CudaCodec& plan, const CudaCase& one) {
  const size_t count = one.gradient.size();
  return {.codec = plan,
          .seed = one.seed,
          .count = static_cast<uint32_t>(count),
          .decay = one.decay,
          .choice = cuda_choice(codec, count, EncodeInput().round, one.has_residual)};
}

// What encoding left, as the payload that travels.
inline std::vector<std::byte> cuda_case_payload(const Codec& codec, const CudaEncode& input,
                                                const std::vector<std::byte>& left) {
  if (input.codec.family != CudaFamily::kSelections) return left;
  std::vector<std::byte> payload(codec.payload_bytes_max(input.count));
  payload.resize(payload_of_list(input.codec, input.count, input.choice.entries, left, payload));
  return payload;
}

// ... and what is applied of it.
inline std::vector<std::byte> cuda_case_list(const CudaCodec& plan, size_t count,
                                             const std::vector<std::byte>& payload) {
  if (plan.family != CudaFamily::kSelections) return payload;
  const auto entries = static_cast<uint32_t>(count);
  std::vector<std::byte> list(cuda_payload_bytes(plan, count, entries));
  list_of_payload(payload, entries, list);
  return list;
}

inline void encode_by_codec(Codec& codec, CudaCase& one) {
  EncodeInput input{.decay = one.decay, .seed = one.seed};
  if (one.has_gradient) input.gradient = one.gradient;
  if (one.has_residual) input.residual = one.residual;
  const std::span<float> momentum = codec.momentum();
  std::copy_n(one.momentum.begin(), momentum.size(), momentum.begin());
  one.payload.resize(codec.payload_bytes_max(one.gradient.size()));
  one.payload.resize(codec.encode(input, one.payload));
  std::copy(momentum.begin(), momentum.end(), one.momentum.begin());
}

// Bits, where NaN is NaN: a device's arithmetic has one NaN only.
inline void expect_alike(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(expected[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i]))
        << "element " << i << ": " << got[i] << ", expected " << expected[i];
  }
}

inline void expect_same_bytes(const std::vector<std::byte>& got,
                              const std::vector<std::byte>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(static_cast<int>(got[i]), static_cast<int>(expected[i])) << "byte " << i;
}

// Odd values are tried at lengths of one thing alone and of one too many.
inline bool is_tried(CudaValues kind, size_t count, int inputs) {
  if (kind == CudaValues::kNormal) return true;
  const bool tried = count == 1 || count == 33 || count == 2049 || count == 6001;
  return tried && (inputs != 2 || kind == CudaValues::kTies);
}

// body(codec, case that `codec` has encoded, the same case before that) for each of the above.
template <class Body>
void on_each_cuda_case(const Body& body) {
  for (const std::string_view spec : kCudaSpecs)
    for (const size_t count : kCudaCounts)
      for (const CudaValues kind : kCudaValues)
        for (const int inputs : {1, 2, 3}) {
          if (testing::Test::HasFatalFailure()) return;
          if (!is_tried(kind, count, inputs)) continue;
          const CudaCase before = cuda_case(kind, count, (inputs & 1) != 0, (inputs & 2) != 0);
          SCOPED_TRACE(std::string(spec) + ", " + std::to_string(count) + " elements, values " +
                       std::to_string(static_cast<int>(kind)) + ", inputs " +
                       std::to_string(inputs));
          const auto codec = cuda_case_codec(spec, count);
          CudaCase after = before;
          encode_by_codec(*codec, after);
          body(*codec, after, before);
        }
}

// Long partitions. Over 2 Mi elements, a block that sums up takes more than one piece. Over 1 Mi,
// the codecs do not look at the gradient first.
inline constexpr std::pair<std::string_view, size_t> kLongCudaCases[] = {
    {"topk:ratio=0.4", (size_t{2} << 20) + 4099}, {"dgc", (size_t{1} << 20) + 2049},
    {"randk:ratio=0.5", (size_t{1} << 20) + 1},   {"threshold:value=0.03", (size_t{1} << 20) + 1},
    {"qsgd:bucket=0", (size_t{2} << 20) + 4099},  {"terngrad:bucket=40000", 130001},
    {"onebit:block=0", (size_t{1} << 18) + 7},    {"efsignsgd:block=70000", 150001}};

template <class Body>
void on_each_long_cuda_case(const Body& body) {
  for (const auto& [spec, count] : kLongCudaCases) {
    if (testing::Test::HasFatalFailure()) return;
    SCOPED_TRACE(std::string(spec) + ", " + std::to_string(count) + " elements");
    const auto codec = cuda_case_codec(spec, count);
    const CudaCase before = cuda_case(CudaValues::kNormal, count, true, true);
    CudaCase after = before;
    encode_by_codec(*codec, after);
    body(*codec, after, before);
  }
}

}  // namespace gradbus
