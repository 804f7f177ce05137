// The kernels of compression/cuda, run on the processor, against the codecs' own bytes.
#include "compression/cuda/kernels/works.h"

#include "tests/unit/compression/cuda/cuda_cases.h"
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
    auto* first = reinterpret_cast<std::byte*>(memory.data());
    return first + (16 - reinterpret_cast<uintptr_t>(first) % 16) % 16;
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

// What the workspace holds before must not matter.
std::vector<std::byte> encode_on_host(CudaEncode input, CudaCase& one, GridOrder order) {
  GuardedPayload payload(cuda_payload_bytes(input.codec, input.count, input.choice.entries));
  GuardedPayload workspace(cuda_workspace_bytes(input));
  input.gradient = one.has_gradient ? one.gradient.data() : nullptr;
  input.residual = one.has_residual ? one.residual.data() : nullptr;
  input.momentum = input.codec.momentum != 0 ? one.momentum.data() : nullptr;
  input.payload = reinterpret_cast<uint8_t*>(payload.data());
  input.workspace = workspace.data();
  start_encode(input, [&](const auto& work) { run_on_host(work, order); });
  EXPECT_TRUE(payload.is_intact() && workspace.is_intact());
  return payload.bytes();
}

void apply_on_host(CudaApply input, const std::vector<std::byte>& bytes, std::vector<float>& to) {
  GuardedPayload payload(bytes.size());
  std::memcpy(payload.data(), bytes.data(), bytes.size());
  input.payload = reinterpret_cast<const uint8_t*>(payload.data());
  input.to = to.data();
  input.count = static_cast<uint32_t>(to.size());
  start_apply(input, [](const auto& work) { run_on_host(work, GridOrder::kForwards); });
}

// Expect: what is made room for once is enough in each round of a warm-up and behind it.
TEST(CudaChoices, NoRoundNeedsMoreRoom) {
  for (const std::string_view text :
       {"topk:ratio=0.01,warmup=12", "dgc:ratio=0.01,warmup=12", "dgc:ratio=0.0001,warmup=12,c=0.5",
        "dgc:ratio=0.3,sample=0.5,warmup=12", "randk:ratio=0.3", "threshold", "int8"}) {
    for (const size_t count : {1, 100, 10007, 300000}) {
      const auto codec = cuda_case_codec(text, count);
      CudaEncode room{.codec = cuda_codec(*codec).value(), .count = static_cast<uint32_t>(count)};
      CudaEncode input = room;
      room.choice = cuda_choice_max(*codec, count);
      for (uint64_t round = 1; round <= 15; ++round) {
        input.choice = cuda_choice(*codec, count, round, true);
        EXPECT_LE(input.choice.entries, room.choice.entries) << text << " " << count;
        EXPECT_LE(cuda_workspace_bytes(input), cuda_workspace_bytes(room)) << text << " " << count;
      }
    }
  }
}

TEST(CudaWorks, EncodeTheCodecsBytes) {
  on_each_cuda_case([](const Codec& codec, const CudaCase& expected, const CudaCase& before) {
    const auto plan = cuda_codec(codec);
    ASSERT_TRUE(plan.has_value());
    const CudaEncode input = cuda_case_input(codec, *plan, before);
    ASSERT_TRUE(is_possible(*plan, input.choice, input.count));
    for (const GridOrder order : {GridOrder::kForwards, GridOrder::kBackwards}) {
      CudaCase got = before;
      const std::vector<std::byte> left = encode_on_host(input, got, order);
      expect_same_bytes(cuda_case_payload(codec, input, left), expected.payload);
      expect_alike(got.residual, expected.residual);
      expect_alike(got.momentum, expected.momentum);
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
      const CudaApply input{.codec = *plan,
                            .scale = 0.3F,
                            .add = add ? 1u : 0u,
                            .entries = static_cast<uint32_t>(count)};
      apply_on_host(input, cuda_case_list(*plan, count, encoded.payload), got);
      expect_alike(got, expected);
    }
  });
}

// A payload that changes after it was checked gives wrong numbers and touches nothing else: no byte
// of it is an index, and those of a list are compared with the count.
TEST(CudaWorks, NoByteOfAPayloadIsAnAddress) {
  std::mt19937_64 random(5);
  for (const std::string_view spec : kCudaSpecs) {
    const auto codec = cuda_case_codec(spec, 3001);
    const auto plan = cuda_codec(*codec);
    ASSERT_TRUE(plan.has_value());
    std::vector<std::byte> payload(cuda_payload_bytes(*plan, 3001, 3001));
    for (const uint64_t mask : {0xffu, 0x0fu}) {  // lists: beyond, and before the end
      for (std::byte& byte : payload) byte = static_cast<std::byte>(random() & mask);
      std::vector<float> to(3001, 7);
      apply_on_host({.codec = *plan, .add = 1, .entries = 3001}, payload, to);
      EXPECT_EQ(to.size(), 3001U) << spec;
    }
  }
}

TEST(CudaWorks, EncodeLongPartitionsAsTheCodecsDo) {
  on_each_long_cuda_case([](const Codec& codec, const CudaCase& expected, const CudaCase& before) {
    const CudaEncode input = cuda_case_input(codec, *cuda_codec(codec), before);
    CudaCase got = before;
    const auto left = encode_on_host(input, got, GridOrder::kBackwards);
    expect_same_bytes(cuda_case_payload(codec, input, left), expected.payload);
    expect_alike(got.residual, expected.residual);
  });
}

// A device never writes the residual of such a partition; a codec undoes what it wrote of a long
// one, to a rounding. Of a short one it names the gradient's first NaN, though a sum overflows
// before that.
TEST(CudaWorks, NotFiniteLeavesTheResidual) {
  for (const size_t count : {size_t{3000}, (size_t{1} << 20) + 2049}) {
    SCOPED_TRACE(count);
    const auto codec = cuda_case_codec("topk", count);
    CudaCase expected = cuda_case(CudaValues::kNormal, count, true, true);
    expected.residual[count / 2] = expected.gradient[count / 2] = std::numeric_limits<float>::max();
    expected.gradient[count - 1] = std::numeric_limits<float>::quiet_NaN();
    CudaCase got = expected;
    const std::vector<float> before = got.residual;
    encode_by_codec(*codec, expected);
    const CudaEncode input = cuda_case_input(*codec, *cuda_codec(*codec), got);
    const auto left = encode_on_host(input, got, GridOrder::kForwards);
    expect_same_bytes(cuda_case_payload(*codec, input, left), expected.payload);
    expect_alike(got.residual, before);
  }
}

// In flight: the vector, what stays, and the sum of three agents put back.
TEST(CudaWorks, RandkInFlightIsTheCodecs) {
  for (const std::string_view text : {"randk", "randk:ratio=0.7,scale=yes"})
    for (const size_t count : {1, 33, 2049, 6001})
      for (const CudaValues kind : {CudaValues::kNormal, CudaValues::kNan, CudaValues::kTies})
        for (const bool has_residual : {false, true}) {
          SCOPED_TRACE(std::string(text) + ", " + std::to_string(count) + " elements, values " +
                       std::to_string(static_cast<int>(kind)));
          const Result<CompressionSpec> spec = parse_compression(text);
          ASSERT_TRUE(spec.ok());
          const auto codec =
              spec.value().codec->make_linear(spec.value().options, {.count_max = count});
          CudaCase one = cuda_case(kind, count, true, has_residual);
          CudaCase got = one;
          EncodeInput in{.gradient = one.gradient, .decay = one.decay};
          if (has_residual) in.residual = one.residual;
          std::vector<float> vector(codec->vector_elements(0));
          codec->project(0, in, one.seed, {}, std::as_writable_bytes(std::span(vector)));

          const CudaEncode input{.codec = *cuda_codec(*codec),
                                 .seed = one.seed,
                                 .count = static_cast<uint32_t>(count),
                                 .decay = one.decay,
                                 .choice = cuda_choice(*codec, count, has_residual)};
          ASSERT_TRUE(is_possible(input.codec, input.choice, input.count));
          std::vector<std::byte> list = encode_on_host(input, got, GridOrder::kBackwards);
          std::vector<float> sent(vector.size());
          std::memcpy(sent.data(), list.data() + kPayloadHeaderBytes, sent.size() * sizeof(float));
          expect_alike(sent, vector);
          expect_alike(got.residual, one.residual);

          for (float& value : vector) value *= -3;
          std::memcpy(list.data() + kPayloadHeaderBytes, vector.data(), vector.size() * 4);
          std::vector<float> values(count, 7);
          std::vector<float> put(count, 8);
          codec->finish(in, one.seed, 3, std::as_bytes(std::span(vector)), 0.3F, values);
          apply_on_host(
              {.codec = input.codec, .scale = 0.3F, .add = 2, .entries = input.choice.entries},
              list, put);
          expect_alike(put, values);
        }
}

TEST(CudaWorks, OtherCodecsHaveNone) {
  EXPECT_FALSE(cuda_codec(*cuda_case_codec("int8:entropy=zstd", 1000)).has_value());
  for (const std::string_view text : {"powersgd", "blocktopk"}) {
    const Result<CompressionSpec> spec = parse_compression(text);
    ASSERT_TRUE(spec.ok());
    const auto codec = spec.value().codec->make_linear(spec.value().options, {.count_max = 1000});
    EXPECT_FALSE(cuda_codec(*codec).has_value()) << text;
  }
}

TEST(CudaWorks, ImpossiblePlansAreRefused) {
  const CudaCodec good = *cuda_codec(*cuda_case_codec("int8", 1000));
  EXPECT_TRUE(is_possible(good));
  for (const auto spoil :
       {+[](CudaCodec& codec) { codec.bucket = 0; }, +[](CudaCodec& codec) { codec.bucket = 33; },
        +[](CudaCodec& codec) { codec.bits = 3; }, +[](CudaCodec& codec) { codec.kind = 9; },
        +[](CudaCodec& codec) { codec.bound = 4; },
        +[](CudaCodec& codec) { codec.family = static_cast<CudaFamily>(4); }}) {
    CudaCodec codec = good;
    spoil(codec);
    EXPECT_FALSE(is_possible(codec));
  }
}

TEST(CudaWorks, ImpossibleChoicesAreRefused) {
  const auto codec = cuda_case_codec("dgc", 100000);
  const CudaCodec plan = *cuda_codec(*codec);
  const CudaChoice good = cuda_choice(*codec, 100000, 1, true);
  EXPECT_TRUE(is_possible(plan, good, 100000));
  for (const auto spoil :
       {+[](CudaChoice& choice) { choice.entries = 0; },
        +[](CudaChoice& choice) { choice.entries = 100001; },
        +[](CudaChoice& choice) { choice.top = choice.samples + 1; },
        +[](CudaChoice& choice) { choice.top = 0; }, +[](CudaChoice& choice) { choice.stride = 0; },
        +[](CudaChoice& choice) { choice.stride *= 2; },
        +[](CudaChoice& choice) { choice.in_flight = 1; }}) {
    CudaChoice choice = good;
    spoil(choice);
    EXPECT_FALSE(is_possible(plan, choice, 100000));
  }
  const CudaCodec threshold = *cuda_codec(*cuda_case_codec("threshold", 1000));
  EXPECT_FALSE(is_possible(threshold, {.entries = 999}, 1000));
}

}  // namespace
}  // namespace gradbus
