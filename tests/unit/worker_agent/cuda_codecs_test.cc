// Every kernel of the CUDA plug-in on a real GPU, against the codecs' own bytes. Skipped by name,
// with the reason, where there is no plug-in, driver or GPU.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/compression/cuda_cases.h"
#include "worker_agent/device/cuda_plugin.h"

namespace gradbus {
namespace {

constexpr size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xa5};
constexpr size_t kBufferBytes = size_t{1} << 20;

class CudaDevice : public testing::Test {
 protected:
  void SetUp() override {
    const Result<const CudaPlugin*> plugin = system_cuda_plugin();
    if (!plugin.ok()) GTEST_SKIP() << plugin.status().message();
    const auto devices = cuda_devices(*plugin.value());
    if (!devices.ok()) GTEST_SKIP() << devices.status().message();
    plugin_ = plugin.value();
    must(table().create_stream(0, &stream_), "stream");
    for (void** buffer : {&gradient_, &residual_, &payload_})
      must(table().allocate(0, kBufferBytes, buffer), "memory");
  }

  void TearDown() override {
    if (stream_ == nullptr) return;
    must(table().synchronize(stream_), "synchronize");
    for (void* buffer : {gradient_, residual_, payload_}) must(table().free(0, buffer), "free");
    must(table().destroy_stream(stream_), "stream");
  }

  const CudaTable& table() const { return *plugin_->table; }
  void must(CudaResult result, const char* what) const {
    ASSERT_TRUE(cuda_status(*plugin_, result, what).ok())
        << cuda_status(*plugin_, result, what).message();
  }
  void copy(void* to, const void* from, size_t bytes) const {
    ASSERT_LE(bytes, kBufferBytes);
    if (bytes > 0) must(table().copy(stream_, to, from, bytes), "copy");
  }

  // What the device makes of it; bytes behind the payload must stay as they are.
  void encode(const CudaCodec& plan, CudaCase& one) const {
    const size_t count = one.gradient.size();
    const size_t bytes = cuda_payload_bytes(plan, count);
    one.payload.assign(bytes + kGuardBytes, kGuard);
    copy(gradient_, one.gradient.data(), count * sizeof(float));
    copy(residual_, one.residual.data(), count * sizeof(float));
    copy(payload_, one.payload.data(), one.payload.size());
    const CudaEncode input{
        .codec = plan,
        .gradient = one.has_gradient ? static_cast<const float*>(gradient_) : nullptr,
        .residual = one.has_residual ? static_cast<float*>(residual_) : nullptr,
        .payload = static_cast<uint8_t*>(payload_),
        .seed = one.seed,
        .count = static_cast<uint32_t>(count),
        .decay = one.decay};
    must(table().encode(stream_, &input), "encode");
    copy(one.payload.data(), payload_, one.payload.size());
    copy(one.residual.data(), residual_, count * sizeof(float));
    must(table().synchronize(stream_), "synchronize");
    EXPECT_TRUE(std::all_of(one.payload.begin() + static_cast<ptrdiff_t>(bytes), one.payload.end(),
                            [](std::byte byte) { return byte == kGuard; }));
    one.payload.resize(bytes);
  }

  void apply(const CudaCodec& plan, const std::vector<std::byte>& payload, float scale, bool add,
             std::vector<float>& to) const {
    copy(payload_, payload.data(), payload.size());
    copy(residual_, to.data(), to.size() * sizeof(float));
    const CudaApply input{.codec = plan,
                          .payload = static_cast<const uint8_t*>(payload_),
                          .to = static_cast<float*>(residual_),
                          .count = static_cast<uint32_t>(to.size()),
                          .scale = scale,
                          .add = add ? 1u : 0u};
    must(table().apply(stream_, &input), "apply");
    copy(to.data(), residual_, to.size() * sizeof(float));
    must(table().synchronize(stream_), "synchronize");
  }

  const CudaPlugin* plugin_ = nullptr;
  CudaStream* stream_ = nullptr;
  void* gradient_ = nullptr;
  void* residual_ = nullptr;
  void* payload_ = nullptr;
};

TEST_F(CudaDevice, EncodesTheCodecsBytes) {
  on_each_cuda_case([&](const Codec& codec, const CudaCase& expected, const CudaCase& before) {
    const auto plan = cuda_codec(codec);
    ASSERT_TRUE(plan.has_value());
    CudaCase got = before;
    encode(*plan, got);
    expect_same_bytes(got.payload, expected.payload);
    expect_alike(got.residual, expected.residual);
  });
}

TEST_F(CudaDevice, AddsAndDecodesAsTheCodecsDo) {
  on_each_cuda_case([&](const Codec& codec, const CudaCase& encoded, const CudaCase&) {
    const auto plan = cuda_codec(codec);
    ASSERT_TRUE(plan.has_value());
    const std::vector<float> sum =
        cuda_case_values(CudaValues::kNormal, encoded.gradient.size(), 7);
    for (const bool add : {true, false}) {
      std::vector<float> expected = sum;
      std::vector<float> got = sum;
      if (add)
        codec.accumulate(encoded.payload, 0.3F, expected);
      else
        codec.decode(encoded.payload, 0.3F, expected);
      apply(*plan, encoded.payload, 0.3F, add, got);
      expect_alike(got, expected);
    }
  });
}

TEST_F(CudaDevice, EventsComeAfterTheWorkBeforeThem) {
  CudaEvent* event = nullptr;
  must(table().create_event(0, &event), "event");
  CudaCase one = cuda_case(CudaValues::kNormal, 10007, true, true);
  encode(*cuda_codec(*cuda_case_codec("int8", 10007)), one);
  must(table().record_event(event, stream_), "record");
  must(table().wait_event(stream_, event), "wait");
  must(table().synchronize(stream_), "synchronize");
  EXPECT_EQ(table().query_event(event), CudaResult::kOk);
  must(table().destroy_event(event), "event");
}

TEST_F(CudaDevice, RefusesWhatIsWrong) {
  CudaEncode input{.codec = *cuda_codec(*cuda_case_codec("int8", 100))};
  input.count = 100;
  input.payload = static_cast<uint8_t*>(payload_);
  EXPECT_EQ(table().encode(stream_, &input), CudaResult::kInvalid);  // nothing to encode
  input.gradient = static_cast<const float*>(gradient_);
  input.payload += 4;
  EXPECT_EQ(table().encode(stream_, &input), CudaResult::kInvalid);  // not aligned
  input.payload -= 4;
  input.codec.bucket = 33;
  EXPECT_EQ(table().encode(stream_, &input), CudaResult::kInvalid);
  void* memory = nullptr;
  EXPECT_EQ(table().allocate(0, uint64_t{1} << 50, &memory), CudaResult::kOutOfMemory);
  EXPECT_EQ(table().allocate(4711, 64, &memory), CudaResult::kNoDevice);
}

}  // namespace
}  // namespace gradbus
