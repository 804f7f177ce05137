// The kernels of compression/cuda, run on the processor, against the codecs' own bytes.
#include "compression/cuda/works.h"

#include "tests/unit/compression/cuda_cases.h"
#include "tests/unit/compression/host_grid.h"

namespace gradbus {
namespace {

constexpr size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xa5};

// Aligned as memory of a device is; bytes behind the payload must stay as they are.
struct GuardedPayload {
  explicit GuardedPayload(size_t bytes)
      : size(bytes), memory((bytes + kGuardBytes) / sizeof(uint64_t) + 2) {
    std::memset(data(), static_cast<int>(kGuard), bytes + kGuardBytes);
  }
  std::byte* data() {
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    return reinterpret_cast<std::byte*>((address + 15) / 16 * 16);
  }
  std::vector<std::byte> bytes() { return {data(), data() + size}; }
  bool is_intact() {
    for (size_t i = 0; i < kGuardBytes; ++i)
      if (data()[size + i] != kGuard) return false;
    return true;
  }
  size_t size;
  std::vector<uint64_t> memory;
};

void encode_on_host(const CudaCodec& plan, CudaCase& one, GridOrder order) {
  GuardedPayload payload(cuda_payload_bytes(plan, one.gradient.size()));
  const CudaEncode input{.codec = plan,
                         .gradient = one.has_gradient ? one.gradient.data() : nullptr,
                         .residual = one.has_residual ? one.residual.data() : nullptr,
                         .payload = reinterpret_cast<uint8_t*>(payload.data()),
                         .seed = one.seed,
                         .count = static_cast<uint32_t>(one.gradient.size()),
                         .decay = one.decay};
  start_encode(input, [&](const auto& work) { run_on_host(work, order); });
  EXPECT_TRUE(payload.is_intact());
  one.payload = payload.bytes();
}

void apply_on_host(const CudaCodec& plan, const std::vector<std::byte>& bytes, float scale,
                   bool add, std::vector<float>& to) {
  GuardedPayload payload(bytes.size());
  std::memcpy(payload.data(), bytes.data(), bytes.size());
  const CudaApply input{.codec = plan,
                        .payload = reinterpret_cast<const uint8_t*>(payload.data()),
                        .to = to.data(),
                        .count = static_cast<uint32_t>(to.size()),
                        .scale = scale,
                        .add = add ? 1u : 0u};
  start_apply(input, [](const auto& work) { run_on_host(work, GridOrder::kForwards); });
}

TEST(CudaWorks, EncodeTheCodecsBytes) {
  on_each_cuda_case([](const Codec& codec, const CudaCase& expected, const CudaCase& before) {
    const auto plan = cuda_codec(codec);
    ASSERT_TRUE(plan.has_value() && is_possible(*plan));
    ASSERT_EQ(cuda_payload_bytes(*plan, before.gradient.size()), expected.payload.size());
    for (const GridOrder order : {GridOrder::kForwards, GridOrder::kBackwards}) {
      CudaCase got = before;
      encode_on_host(*plan, got, order);
      expect_same_bytes(got.payload, expected.payload);
      expect_alike(got.residual, expected.residual);
    }
  });
}

TEST(CudaWorks, AddAndDecodeAsTheCodecsDo) {
  on_each_cuda_case([](const Codec& codec, const CudaCase& encoded, const CudaCase&) {
    const auto plan = cuda_codec(codec);
    ASSERT_TRUE(plan.has_value());
    const size_t count = encoded.gradient.size();
    const std::vector<float> sum = cuda_case_values(CudaValues::kNormal, count, 77);
    for (const bool add : {true, false}) {
      std::vector<float> expected = sum;
      std::vector<float> got = sum;
      if (add)
        codec.accumulate(encoded.payload, 0.3F, expected);
      else
        codec.decode(encoded.payload, 0.3F, expected);
      apply_on_host(*plan, encoded.payload, 0.3F, add, got);
      expect_alike(got, expected);
    }
  });
}

// A payload that changes after it was checked gives wrong numbers and touches nothing else: no byte
// of it is an index.
TEST(CudaWorks, NoByteOfAPayloadIsAnAddress) {
  std::mt19937_64 random(5);
  for (const std::string_view spec : kCudaSpecs) {
    const auto codec = cuda_case_codec(spec, 3001);
    const auto plan = cuda_codec(*codec);
    ASSERT_TRUE(plan.has_value());
    std::vector<std::byte> payload(cuda_payload_bytes(*plan, 3001));
    for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
    std::vector<float> values(3001 + 16, 7);
    std::vector<float> to(values.begin(), values.begin() + 3001);
    apply_on_host(*plan, payload, 1, true, to);
    EXPECT_EQ(to.size(), 3001U) << spec;
  }
}

TEST(CudaWorks, OtherCodecsHaveNone) {
  for (const std::string_view spec : {"topk", "dgc", "randk", "threshold", "signum"}) {
    EXPECT_FALSE(cuda_codec(*cuda_case_codec(spec, 1000)).has_value()) << spec;
  }
  EXPECT_FALSE(cuda_codec(*cuda_case_codec("int8:entropy=zstd", 1000)).has_value());
}

TEST(CudaWorks, ImpossiblePlansAreRefused) {
  const CudaCodec good = *cuda_codec(*cuda_case_codec("int8", 1000));
  EXPECT_TRUE(is_possible(good));
  for (const auto spoil :
       {+[](CudaCodec& codec) { codec.bucket = 0; }, +[](CudaCodec& codec) { codec.bucket = 33; },
        +[](CudaCodec& codec) { codec.bits = 3; }, +[](CudaCodec& codec) { codec.kind = 9; },
        +[](CudaCodec& codec) { codec.bound = 4; },
        +[](CudaCodec& codec) { codec.family = static_cast<CudaFamily>(3); }}) {
    CudaCodec codec = good;
    spoil(codec);
    EXPECT_FALSE(is_possible(codec));
  }
}

}  // namespace
}  // namespace gradbus
