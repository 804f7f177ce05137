// Compares every kernel of the CUDA plug-in on a real GPU with the codecs' bytes. Without a
// plug-in, driver or GPU the tests are skipped with the reason.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/compression/cuda/cuda_cases.h"
#include "tests/unit/compression/cuda/cuda_error_feedback_cases.h"
#include "tests/unit/compression/cuda/cuda_linear_cases.h"
#include "worker_agent/gpu/cuda_plugin.h"

namespace gradbus {
namespace {

constexpr size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xa5};
constexpr size_t kBufferBytes = size_t{16} << 20;

class CudaDevice : public testing::Test {
 protected:
  void SetUp() override {
    const Result<const CudaPlugin*> plugin = system_cuda_plugin();
    if (!plugin.ok()) GTEST_SKIP() << plugin.status().message();
    const auto devices = cuda_devices(*plugin.value());
    if (!devices.ok()) GTEST_SKIP() << devices.status().message();
    plugin_ = plugin.value();
    must(table().create_stream(0, &stream_), "stream");
    for (void** buffer : {&gradient_, &residual_, &momentum_, &payload_, &workspace_})
      must(table().allocate(0, kBufferBytes, buffer), "memory");
  }

  void TearDown() override {
    if (stream_ == nullptr) return;
    must(table().synchronize(stream_), "synchronize");
    for (void* buffer : {gradient_, residual_, momentum_, payload_, workspace_})
      must(table().free(0, buffer), "free");
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

  // The output of the device. Bytes behind it must not change.
  std::vector<std::byte> encode(CudaEncode input, CudaCase& one) const {
    const size_t bytes = cuda_payload_bytes(input.codec, input.count, input.choice.entries);
    const size_t workspace = cuda_workspace_bytes(input);
    std::vector<std::byte> left(bytes + kGuardBytes, kGuard);
    std::vector<std::byte> around(workspace + kGuardBytes, kGuard);
    const size_t floats = input.count * sizeof(float);
    copy(gradient_, one.gradient.data(), floats);
    copy(residual_, one.residual.data(), floats);
    copy(momentum_, one.momentum.data(), floats);
    copy(payload_, left.data(), left.size());
    copy(workspace_, around.data(), around.size());
    if (one.has_gradient) input.gradient = static_cast<const float*>(gradient_);
    if (one.has_residual) input.residual = static_cast<float*>(residual_);
    if (input.codec.momentum != 0) input.momentum = static_cast<float*>(momentum_);
    input.payload = static_cast<uint8_t*>(payload_);
    input.workspace = workspace_;
    must(table().encode(stream_, &input), "encode");
    copy(left.data(), payload_, left.size());
    copy(around.data(), workspace_, around.size());
    copy(one.residual.data(), residual_, floats);
    copy(one.momentum.data(), momentum_, floats);
    must(table().synchronize(stream_), "synchronize");
    EXPECT_TRUE(is_guarded(left, bytes) && is_guarded(around, workspace));
    left.resize(bytes);
    return left;
  }

  // Copies the partition's vectors to device memory, and back.
  void put_partition(CudaPartition& partition) const {
    copy(gradient_, partition.gradient, partition.count * sizeof(float));
    copy(residual_, partition.residual, partition.count * sizeof(float));
    partition.gradient = static_cast<const float*>(gradient_);
    partition.residual = static_cast<float*>(residual_);
  }
  void get_unit(const CudaPartition& partition) const {
    copy(partition.residual, residual_, partition.count * sizeof(float));
    must(table().synchronize(stream_), "synchronize");
  }

  static bool is_guarded(const std::vector<std::byte>& memory, size_t bytes) {
    return std::all_of(memory.begin() + static_cast<ptrdiff_t>(bytes), memory.end(),
                       [](std::byte byte) { return byte == kGuard; });
  }

  void apply(CudaApply input, const std::vector<std::byte>& payload, std::vector<float>& to) const {
    copy(payload_, payload.data(), payload.size());
    copy(residual_, to.data(), to.size() * sizeof(float));
    input.payload = static_cast<const uint8_t*>(payload_);
    input.to = static_cast<float*>(residual_);
    input.count = static_cast<uint32_t>(to.size());
    must(table().apply(stream_, &input), "apply");
    copy(to.data(), residual_, to.size() * sizeof(float));
    must(table().synchronize(stream_), "synchronize");
  }

  const CudaPlugin* plugin_ = nullptr;
  CudaStream* stream_ = nullptr;
  void* gradient_ = nullptr;
  void* residual_ = nullptr;
  void* momentum_ = nullptr;
  void* payload_ = nullptr;
  void* workspace_ = nullptr;
};

TEST_F(CudaDevice, EncodesTheCodecsBytes) {
  on_each_cuda_case([&](const Codec& codec, const CudaCase& expected, const CudaCase& before) {
    const auto plan = cuda_codec(codec);
    ASSERT_TRUE(plan.has_value());
    const CudaEncode input = cuda_case_input(codec, *plan, before);
    CudaCase got = before;
    const std::vector<std::byte> left = encode(input, got);
    expect_same_bytes(cuda_case_payload(codec, input, left), expected.payload);
    expect_alike(got.residual, expected.residual);
    expect_alike(got.momentum, expected.momentum);
  });
}

TEST_F(CudaDevice, EncodesLongPartitionsAsTheCodecsDo) {
  on_each_long_cuda_case([&](const Codec& codec, const CudaCase& expected, const CudaCase& before) {
    const CudaEncode input = cuda_case_input(codec, *cuda_codec(codec), before);
    CudaCase got = before;
    const std::vector<std::byte> left = encode(input, got);
    expect_same_bytes(cuda_case_payload(codec, input, left), expected.payload);
    expect_alike(got.residual, expected.residual);
  });
}

TEST_F(CudaDevice, AddsAndDecodesAsTheCodecsDo) {
  on_each_cuda_case([&](const Codec& codec, const CudaCase& encoded, const CudaCase&) {
    const auto plan = cuda_codec(codec);
    ASSERT_TRUE(plan.has_value());
    const size_t count = encoded.gradient.size();
    const std::vector<float> sum = cuda_case_values(CudaValues::kNormal, count, 7);
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
      apply(input, cuda_case_list(*plan, count, encoded.payload), got);
      expect_alike(got, expected);
    }
  });
}

TEST_F(CudaDevice, RemembersAsMemoriesDo) {
  on_each_cuda_memory_case(
      [&](CudaMomentum step, CudaEncode input, bool masks, CudaMemoryPartition& partition) {
        const size_t floats = input.count * sizeof(float);
        const size_t bytes = cuda_payload_bytes(input.codec, input.count, input.choice.entries);
        copy(gradient_, partition.one.gradient.data(), floats);
        copy(residual_, partition.one.residual.data(), floats);
        copy(momentum_, partition.momentum.data(), floats);
        step.gradient = static_cast<const float*>(gradient_);
        step.residual = static_cast<float*>(residual_);
        step.momentum = static_cast<float*>(momentum_);
        step.taken = reinterpret_cast<uint32_t*>(static_cast<char*>(gradient_) + kBufferBytes - 4);
        must(table().remember(stream_, &step), "remember");
        input.gradient = step.gradient;
        input.residual = step.residual;
        input.taken = step.taken;
        input.payload = static_cast<uint8_t*>(payload_);
        input.workspace = workspace_;
        must(table().encode(stream_, &input), "encode");
        const bool lists = masks && input.codec.family == CudaFamily::kSelections;
        const CudaForget forget{lists ? input.payload : nullptr,
                                step.momentum,
                                step.residual,
                                step.taken,
                                input.count,
                                input.choice.entries};
        must(table().forget(stream_, &forget), "forget");
        std::vector<std::byte> left(bytes);
        copy(left.data(), payload_, bytes);
        copy(partition.one.residual.data(), residual_, floats);
        copy(partition.momentum.data(), momentum_, floats);
        must(table().synchronize(stream_), "synchronize");
        return left;
      });
}

TEST_F(CudaDevice, ReducesAsTheProcessor) {
  on_each_cuda_reduction([&](CudaReduce input, std::vector<std::vector<std::byte>>& rank_buffers) {
    constexpr size_t kRankBuffer = kBufferBytes / kCudaRankBuffersMax;
    auto* const memory = static_cast<char*>(gradient_);
    for (size_t s = 0; s < rank_buffers.size(); ++s)
      copy(memory + s * kRankBuffer, rank_buffers[s].data(), rank_buffers[s].size());
    for (uint32_t s = 0; s < input.source_count; ++s) input.sources[s] = memory + s * kRankBuffer;
    for (uint32_t t = 0; t < input.target_count; ++t) input.targets[t] = memory + t * kRankBuffer;
    must(table().reduce(stream_, &input), "reduce");
    for (size_t s = 0; s < rank_buffers.size(); ++s)
      copy(rank_buffers[s].data(), memory + s * kRankBuffer, rank_buffers[s].size());
    must(table().synchronize(stream_), "synchronize");
  });
}

TEST_F(CudaDevice, MultipliesAsPowerSgd) {
  cuda_linear::on_each_low_rank([&](CudaLowRank input) {
    const CudaLowRank host = input;
    const size_t out = input.part == CudaRankPart::kRows      ? size_t{input.rank} * input.rows
                       : input.part == CudaRankPart::kColumns ? size_t{input.rank} * input.columns
                                                              : input.partition.count;
    const size_t p_floats = size_t{input.rank} * input.rows;
    put_partition(input.partition);
    auto* const vectors = static_cast<float*>(payload_);
    copy(vectors, host.p, p_floats * sizeof(float));
    copy(vectors + p_floats, host.q, size_t{input.rank} * input.columns * sizeof(float));
    input.p = vectors;
    input.q = vectors + p_floats;
    input.out = static_cast<float*>(workspace_);
    must(table().low_rank(stream_, &input), "low_rank");
    copy(host.out, workspace_, out * sizeof(float));
    get_unit(host.partition);
  });
}

TEST_F(CudaDevice, ChoosesBlocksAsBlockTopK) {
  cuda_linear::on_each_blocks([&](CudaBlocks input) {
    const CudaBlocks host = input;
    const size_t norms = (input.partition.count + input.block - 1) / input.block;
    const size_t element = dtype_bytes(static_cast<DType>(input.dtype));
    const size_t sent = size_t{input.chosen} * input.block * element;
    put_partition(input.partition);
    auto* const lists = static_cast<uint32_t*>(payload_);
    if (host.blocks != nullptr) copy(lists, host.blocks, input.chosen * sizeof(uint32_t));
    if (host.places != nullptr) copy(lists + norms, host.places, norms * sizeof(uint32_t));
    if (host.sum != nullptr) copy(momentum_, host.sum, sent);
    input.blocks = lists;
    input.places = lists + norms;
    input.sum = momentum_;
    input.out = workspace_;
    must(table().blocks(stream_, &input), "blocks");
    const bool finishes = input.part == CudaBlocksPart::kFinish;
    copy(host.out, workspace_,
         input.part == CudaBlocksPart::kNorms ? norms * sizeof(float)
         : finishes                           ? input.partition.count * sizeof(float)
                                              : sent);
    get_unit(host.partition);
  });
}

TEST_F(CudaDevice, PinsMemoryThatIsThere) {
  std::vector<char> memory(size_t{1} << 20);
  must(table().pin(memory.data(), memory.size()), "pin");
  EXPECT_NE(table().pin(memory.data(), memory.size()), CudaResult::kOk);  // pins it twice
  must(table().unpin(memory.data()), "unpin");
}

TEST_F(CudaDevice, EventsComeAfterTheWorkBeforeThem) {
  CudaEvent* event = nullptr;
  must(table().create_event(0, &event), "event");
  CudaCase one = cuda_case(CudaValues::kNormal, 10007, true, true);
  const auto codec = cuda_case_codec("int8", 10007);
  encode(cuda_case_input(*codec, *cuda_codec(*codec), one), one);
  must(table().record_event(event, stream_), "record");
  must(table().wait_event(stream_, event), "wait");
  must(table().synchronize(stream_), "synchronize");
  EXPECT_EQ(table().query_event(event), CudaResult::kOk);
  must(table().destroy_event(event), "event");
}

TEST_F(CudaDevice, TimersTellHowLongWorkTook) {
  CudaEvent* timers[2] = {};
  for (CudaEvent*& timer : timers) must(table().create_timer(0, &timer), "timer");
  must(table().record_event(timers[0], stream_), "record");
  CudaCase one = cuda_case(CudaValues::kNormal, 10007, true, true);
  const auto codec = cuda_case_codec("topk", 10007);
  encode(cuda_case_input(*codec, *cuda_codec(*codec), one), one);
  must(table().record_event(timers[1], stream_), "record");
  must(table().synchronize(stream_), "synchronize");
  float ms = 0;
  must(table().elapsed(timers[0], timers[1], &ms), "elapsed");
  EXPECT_GT(ms, 0);
  for (CudaEvent* timer : timers) must(table().destroy_event(timer), "timer");
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
  input.codec = *cuda_codec(*cuda_case_codec("topk", 100));
  input.workspace = workspace_;
  EXPECT_EQ(table().encode(stream_, &input), CudaResult::kInvalid);  // without a count
  input.choice.entries = 7;
  input.workspace = nullptr;
  EXPECT_EQ(table().encode(stream_, &input), CudaResult::kInvalid);  // no workspace
  EXPECT_EQ(table().remember(stream_, std::make_unique<CudaMomentum>().get()),
            CudaResult::kInvalid);
  EXPECT_EQ(table().reduce(stream_, std::make_unique<CudaReduce>().get()), CudaResult::kInvalid);
  EXPECT_EQ(table().low_rank(stream_, std::make_unique<CudaLowRank>().get()), CudaResult::kOk);
  CudaBlocks none;
  none.block = 0;
  EXPECT_EQ(table().blocks(stream_, &none), CudaResult::kInvalid);
  const CudaForget longer{input.payload, nullptr, nullptr, nullptr, 3, 4};
  EXPECT_EQ(table().forget(stream_, &longer), CudaResult::kInvalid);
  input.codec = *cuda_codec(*cuda_case_codec("signum", 100));
  EXPECT_EQ(table().encode(stream_, &input), CudaResult::kInvalid);  // no momentum
  void* memory = nullptr;
  EXPECT_EQ(table().allocate(0, uint64_t{1} << 50, &memory), CudaResult::kOutOfMemory);
  EXPECT_EQ(table().allocate(4711, 64, &memory), CudaResult::kNoDevice);
}

}  // namespace
}  // namespace gradbus
