// The C interface in a world of one, which needs no daemon: values, and every misuse is an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "gradbus/gradbus.h"
#include "gradbus/gradbus.hpp"

namespace {

struct Alone : testing::Test {
  void SetUp() override {
    ASSERT_EQ(gradbus_init(nullptr, &session), GRADBUS_OK) << gradbus_last_error();
  }
  void TearDown() override { EXPECT_EQ(gradbus_shutdown(session), GRADBUS_OK); }
  gradbus_session* session = nullptr;
};

gradbus_tensor_spec spec_of(const char* name, uint64_t count, gradbus_dtype dtype, gradbus_op op) {
  gradbus_tensor_spec spec;
  gradbus_tensor_spec_init(&spec);
  spec.name = name;
  spec.count = count;
  spec.dtype = dtype;
  spec.op = op;
  return spec;
}

TEST_F(Alone, KnowsItself) {
  EXPECT_EQ(gradbus_rank(session), 0);
  EXPECT_EQ(gradbus_size(session), 1);
  EXPECT_EQ(gradbus_cross_size(session), 1);
  EXPECT_STREQ(gradbus_launcher(session), "single");
}

TEST_F(Alone, RegisteredTensorsGoRound) {
  const gradbus_tensor_spec spec = spec_of("w", 1001, GRADBUS_F32, GRADBUS_AVERAGE);
  gradbus_tensor* tensor = nullptr;
  ASSERT_EQ(gradbus_register(session, &spec, 1, &tensor), GRADBUS_OK) << gradbus_last_error();
  auto* data = static_cast<float*>(gradbus_tensor_data(tensor));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 128, 0u);
  EXPECT_EQ(data[1000], 0.0f);
  for (int round = 0; round < 3; ++round) {
    data[7] = static_cast<float>(round);
    ASSERT_EQ(gradbus_start(tensor), GRADBUS_OK);
    EXPECT_EQ(gradbus_start(tensor), GRADBUS_BUSY) << "one round at a time";
    ASSERT_EQ(gradbus_wait(tensor, 1000), GRADBUS_OK) << gradbus_last_error();
    EXPECT_EQ(data[7], static_cast<float>(round));
  }
  EXPECT_EQ(gradbus_wait(tensor, 0), GRADBUS_OK) << "nothing was started";
  gradbus_tensor* again = nullptr;
  EXPECT_EQ(gradbus_register(session, &spec, 1, &again), GRADBUS_OK);
  EXPECT_EQ(again, tensor);
}

// With one rank nothing is compressed, hence nothing kept: what is written goes into the next
// round.
TEST_F(Alone, AWrittenResidualIsAddedToTheNextRound) {
  gradbus_tensor_spec spec = spec_of("w", 3, GRADBUS_F32, GRADBUS_SUM);
  spec.compression = "topk:ratio=0.1";
  gradbus_tensor* tensor = nullptr;
  ASSERT_EQ(gradbus_register(session, &spec, 1, &tensor), GRADBUS_OK) << gradbus_last_error();
  auto* data = static_cast<float*>(gradbus_tensor_data(tensor));
  const auto put = [&](float value) { std::fill_n(data, 3, value); };
  put(4);
  ASSERT_EQ(gradbus_start_write_residual_state(tensor, GRADBUS_RESIDUAL), GRADBUS_OK);
  ASSERT_EQ(gradbus_wait(tensor, 1000), GRADBUS_OK);
  put(9);
  ASSERT_EQ(gradbus_start_read_residual_state(tensor, GRADBUS_RESIDUAL), GRADBUS_OK);
  ASSERT_EQ(gradbus_wait(tensor, 1000), GRADBUS_OK);
  EXPECT_EQ(data[2], 4);
  ASSERT_EQ(gradbus_scale_residual_state(tensor, 0.5), GRADBUS_OK);
  for (const float wanted : {3.0F, 1.0F}) {  // once, then no more
    put(1);
    ASSERT_EQ(gradbus_start(tensor), GRADBUS_OK);
    EXPECT_EQ(gradbus_start_read_residual_state(tensor, GRADBUS_RESIDUAL), GRADBUS_BUSY);
    ASSERT_EQ(gradbus_wait(tensor, 1000), GRADBUS_OK);
    EXPECT_EQ(data[0], wanted);
  }
  ASSERT_EQ(gradbus_start_read_residual_state(tensor, GRADBUS_MOMENTUM), GRADBUS_OK);
  EXPECT_EQ(data[0], 0);
}

TEST_F(Alone, MemoryNeedsGradientsOfF32) {
  const gradbus_tensor_spec spec = spec_of("w", 3, GRADBUS_F64, GRADBUS_SUM);
  gradbus_tensor* tensor = nullptr;
  ASSERT_EQ(gradbus_register(session, &spec, 1, &tensor), GRADBUS_OK) << gradbus_last_error();
  EXPECT_EQ(gradbus_start_read_residual_state(tensor, GRADBUS_RESIDUAL), GRADBUS_INVALID);
  EXPECT_NE(std::string(gradbus_last_error()).find("\"w\" has no memory"), std::string::npos);
  EXPECT_EQ(gradbus_start_read_residual_state(nullptr, GRADBUS_RESIDUAL), GRADBUS_INVALID);
  EXPECT_EQ(gradbus_start_write_residual_state(tensor, static_cast<gradbus_residual_state>(3)),
            GRADBUS_INVALID);
  for (const double factor : {0.0, -1.0, static_cast<double>(NAN), HUGE_VAL})
    EXPECT_EQ(gradbus_scale_residual_state(tensor, factor), GRADBUS_INVALID) << factor;
  EXPECT_EQ(gradbus_continue_warm_up(tensor, uint64_t{1} << 54), GRADBUS_INVALID);
  EXPECT_EQ(gradbus_continue_warm_up(tensor, 1000), GRADBUS_OK);
  EXPECT_EQ(gradbus_continue_warm_up(nullptr, 1), GRADBUS_INVALID);
}

TEST_F(Alone, NothingIsKeptWhereNoShardHoldsParameters) {
  const gradbus_tensor_spec spec = spec_of("w", 3, GRADBUS_F32, GRADBUS_SUM);
  gradbus_tensor* tensor = nullptr;
  ASSERT_EQ(gradbus_register(session, &spec, 1, &tensor), GRADBUS_OK) << gradbus_last_error();
  EXPECT_EQ(gradbus_optimizer_state_parts(tensor), 0u);
  EXPECT_EQ(gradbus_start_read_optimizer_state(tensor, 0), GRADBUS_INVALID);
  EXPECT_NE(std::string(gradbus_last_error()).find("GB-O900"), std::string::npos);
  EXPECT_EQ(gradbus_start_write_optimizer_state(tensor, 0), GRADBUS_INVALID);
  EXPECT_EQ(gradbus_optimizer_state_parts(nullptr), 0u);
  EXPECT_EQ(gradbus_start_read_optimizer_state(nullptr, 0), GRADBUS_INVALID);
}

// Step n brings n + 1; with one rank its result is the same, taken two steps later.
TEST_F(Alone, ADelayedTensorGivesTheResultOfKStepsBefore) {
  gradbus_tensor_spec spec = spec_of("w", 3, GRADBUS_F32, GRADBUS_SUM);
  spec.mode = "delayed:k=2";
  gradbus_tensor* tensor = nullptr;
  ASSERT_EQ(gradbus_register(session, &spec, 1, &tensor), GRADBUS_OK) << gradbus_last_error();
  ASSERT_EQ(gradbus_tensor_delay(tensor), 2u);
  const auto data = [&] { return static_cast<float*>(gradbus_tensor_data(tensor)); };
  for (int again = 0; again < 2; ++again) {  // a drain ends in the state of the beginning
    for (int step = 0; step < 5; ++step) {
      std::fill_n(data(), 3, static_cast<float>(step + 1));
      ASSERT_EQ(gradbus_start(tensor), GRADBUS_OK);
      EXPECT_EQ(gradbus_start(tensor), GRADBUS_BUSY);
      ASSERT_EQ(gradbus_wait(tensor, 1000), GRADBUS_OK) << gradbus_last_error();
      EXPECT_EQ(data()[2], step < 2 ? 0.0F : static_cast<float>(step - 1));
      EXPECT_EQ(gradbus_staleness(tensor), step < 2 ? -1 : 2);
      EXPECT_EQ(data(), gradbus_slot_data(tensor, gradbus_tensor_slot(tensor)));
    }
    EXPECT_EQ(gradbus_start_read_residual_state(tensor, GRADBUS_RESIDUAL), GRADBUS_BUSY);
    int32_t found = 0;
    for (const int left : {4, 5}) {
      ASSERT_EQ(gradbus_drain(tensor, 1000, &found), GRADBUS_OK);
      EXPECT_EQ(found, 1);
      EXPECT_EQ(data()[0], static_cast<float>(left));
      EXPECT_EQ(gradbus_staleness(tensor), 5 - left);
    }
    ASSERT_EQ(gradbus_drain(tensor, 1000, &found), GRADBUS_OK);
    EXPECT_EQ(found, 0);
    EXPECT_EQ(data()[0], 0);
  }
  EXPECT_EQ(gradbus_slot_data(tensor, 3), nullptr);
}

TEST_F(Alone, ADrainThatWasBegunIsEnded) {
  gradbus_tensor_spec spec = spec_of("w", 3, GRADBUS_F32, GRADBUS_SUM);
  spec.mode = "delayed:k=2";
  gradbus_tensor* tensor = nullptr;
  ASSERT_EQ(gradbus_register(session, &spec, 1, &tensor), GRADBUS_OK) << gradbus_last_error();
  for (int step = 0; step < 2; ++step) {
    ASSERT_EQ(gradbus_start(tensor), GRADBUS_OK);
    ASSERT_EQ(gradbus_wait(tensor, 1000), GRADBUS_OK);
  }
  int32_t found = 0;
  ASSERT_EQ(gradbus_drain(tensor, 1000, &found), GRADBUS_OK);
  EXPECT_EQ(gradbus_start(tensor), GRADBUS_BUSY);
  EXPECT_NE(std::string(gradbus_last_error()).find("a drain has not been ended"),
            std::string::npos);
}

TEST_F(Alone, ModesThatThereAreNot) {
  gradbus_tensor_spec spec = spec_of("w", 3, GRADBUS_F32, GRADBUS_SUM);
  gradbus_tensor* tensor = nullptr;
  for (const char* mode : {"delaid", "delayed:k=0", "delayed:k=65", "sync:k=1"}) {
    spec.mode = mode;
    EXPECT_EQ(gradbus_register(session, &spec, 1, &tensor), GRADBUS_INVALID) << mode;
    EXPECT_NE(std::string(gradbus_last_error()).find("GB-O911"), std::string::npos);
  }
  spec.mode = "delayed";
  spec.collective = GRADBUS_REDUCE;
  EXPECT_EQ(gradbus_register(session, &spec, 1, &tensor), GRADBUS_INVALID);
  gradbus_mode mode;
  gradbus_mode_init(&mode);
  ASSERT_EQ(gradbus_mode_for(session, "w", 3, 1, nullptr, &mode), GRADBUS_OK);
  EXPECT_EQ(mode.kind, GRADBUS_SYNC);
  ASSERT_EQ(gradbus_mode_for(session, "w", 3, 1, "delayed:k=3", &mode), GRADBUS_OK);
  EXPECT_EQ(mode.kind, GRADBUS_DELAYED);
  EXPECT_EQ(mode.delay, 3u);
}

TEST_F(Alone, ModesOfParametersAreToldButNotRegistered) {
  gradbus_tensor_spec spec = spec_of("w", 3, GRADBUS_F32, GRADBUS_SUM);
  gradbus_tensor* tensor = nullptr;
  for (const char* mode : {"averaging:every=2", "gossip", "localsgd", "diloco:H=3"}) {
    spec.mode = mode;
    EXPECT_EQ(gradbus_register(session, &spec, 1, &tensor), GRADBUS_INVALID) << mode;
    const std::string said = gradbus_last_error();
    EXPECT_NE(said.find("GB-O911"), std::string::npos) << said;
    EXPECT_NE(said.find("register a synchronous all-reduce"), std::string::npos) << said;
  }
  gradbus_mode mode;
  gradbus_mode_init(&mode);
  ASSERT_EQ(gradbus_mode_for(session, "w", 3, 1, "averaging:every_ms=20", &mode), GRADBUS_OK);
  EXPECT_EQ(mode.kind, GRADBUS_AVERAGING);
  EXPECT_EQ(mode.period_steps, 0u);
  EXPECT_EQ(mode.period_ms, 20u);
  ASSERT_EQ(gradbus_mode_for(session, "w", 3, 1, "localsgd:H=4", &mode), GRADBUS_OK);
  EXPECT_EQ(mode.kind, GRADBUS_LOCALSGD);
  EXPECT_EQ(mode.period_steps, 4u);
  EXPECT_EQ(mode.outer_lr, 1);
  const char* diloco = "diloco:H=9,outer_lr=0.5,outer_momentum=0.8,fragments=2,overlap=4";
  ASSERT_EQ(gradbus_mode_for(session, "w", 3, 1, diloco, &mode), GRADBUS_OK);
  EXPECT_EQ(mode.kind, GRADBUS_DILOCO);
  EXPECT_EQ(mode.period_steps, 9u);
  EXPECT_EQ(mode.outer_lr, 0.5);
  EXPECT_EQ(mode.outer_momentum, 0.8);
  EXPECT_EQ(mode.fragments, 2u);
  EXPECT_EQ(mode.overlap, 4u);
  const char* gossip = "gossip:topology=ring,every=2,seed=7,wait=1";
  ASSERT_EQ(gradbus_mode_for(session, "w", 3, 1, gossip, &mode), GRADBUS_OK);
  EXPECT_EQ(mode.kind, GRADBUS_GOSSIP);
  EXPECT_EQ(mode.topology, GRADBUS_RING);
  EXPECT_EQ(mode.period_steps, 2u);
  EXPECT_EQ(mode.seed, 7u);
  EXPECT_EQ(mode.wait, 1);
}

TEST_F(Alone, ADelayIsCompensatedByWhoKnowsTheParameters) {
  gradbus_tensor_spec spec = spec_of("w", 3, GRADBUS_F32, GRADBUS_SUM);
  spec.mode = "delayed:k=2,dc=0.5,dc_decay=0.25";
  gradbus_tensor* tensor = nullptr;
  EXPECT_EQ(gradbus_register(session, &spec, 1, &tensor), GRADBUS_INVALID);
  const std::string said = gradbus_last_error();
  EXPECT_NE(said.find("GB-O911"), std::string::npos) << said;
  EXPECT_NE(said.find("register it without dc"), std::string::npos) << said;
  gradbus_mode mode;
  gradbus_mode_init(&mode);
  ASSERT_EQ(gradbus_mode_for(session, "w", 3, 1, spec.mode, &mode), GRADBUS_OK);
  EXPECT_EQ(mode.delay, 2u);
  EXPECT_EQ(mode.dc, 0.5);
  EXPECT_EQ(mode.dc_decay, 0.25);
  ASSERT_EQ(gradbus_mode_for(session, "w", 3, 1, "delayed", &mode), GRADBUS_OK);
  EXPECT_EQ(mode.dc, 0);
  EXPECT_LT(mode.dc_decay, 0);
}

TEST_F(Alone, AdHocOperations) {
  std::vector<double> in{1, 2, NAN};
  std::vector<double> out(3);
  EXPECT_EQ(gradbus_allreduce(session, nullptr, in.data(), out.data(), 3, GRADBUS_F64, GRADBUS_SUM),
            GRADBUS_OK);
  EXPECT_EQ(out[1], 2);
  EXPECT_TRUE(std::isnan(out[2]));
  EXPECT_EQ(gradbus_barrier(session), GRADBUS_OK);
  for (uint64_t count = 0; count < 200; count += 67) {
    const std::vector<int32_t> mine(count, 5);
    gradbus_handle* handle = nullptr;
    ASSERT_EQ(gradbus_allgather_async(session, "g", mine.data(), count, GRADBUS_I32, &handle),
              GRADBUS_OK);
    ASSERT_EQ(gradbus_handle_wait(handle, 1000), GRADBUS_OK) << gradbus_last_error();
    const void* data = nullptr;
    uint64_t bytes = 0;
    const uint64_t* counts = nullptr;
    ASSERT_EQ(gradbus_handle_output(handle, &data, &bytes, &counts), GRADBUS_OK);
    EXPECT_EQ(bytes, count * 4);
    EXPECT_EQ(counts[0], count);
    gradbus_handle_free(handle);
  }
}

TEST_F(Alone, ALossIsReportedToNobody) {
  EXPECT_EQ(gradbus_report_loss(session, 0.5), GRADBUS_OK);
  EXPECT_EQ(gradbus_report_loss(session, NAN), GRADBUS_OK);
  EXPECT_EQ(gradbus_report_loss(nullptr, 0.5), GRADBUS_INVALID);
}

TEST_F(Alone, MisuseIsAnErrorThatNamesTheArgument) {
  int64_t value = 1;
  const auto reduce = [&](const char* name, uint64_t count, int dtype, int op) {
    return gradbus_allreduce(session, name, &value, &value, count,
                             static_cast<gradbus_dtype>(dtype), static_cast<gradbus_op>(op));
  };
  EXPECT_EQ(reduce("x", 1, 99, GRADBUS_SUM), GRADBUS_INVALID);
  EXPECT_NE(std::string(gradbus_last_error()).find("dtype number 99"), std::string::npos);
  EXPECT_EQ(reduce("x", 1, GRADBUS_U64 + 1, GRADBUS_SUM), GRADBUS_INVALID);
  EXPECT_NE(std::string(gradbus_last_error()).find("dtype number 14"), std::string::npos);
  EXPECT_EQ(reduce("x", 1, GRADBUS_U64, GRADBUS_SUM), GRADBUS_OK) << gradbus_last_error();
  EXPECT_EQ(reduce("x", 1, 256 + GRADBUS_I64, GRADBUS_SUM), GRADBUS_INVALID);
  EXPECT_EQ(reduce("x", 1, -1, GRADBUS_SUM), GRADBUS_INVALID);
  EXPECT_EQ(reduce("x", 1, GRADBUS_I64, 9), GRADBUS_INVALID);
  EXPECT_EQ(reduce("x", 1, GRADBUS_F32, GRADBUS_BOR), GRADBUS_INVALID);
  EXPECT_EQ(reduce("x", 1, GRADBUS_BOOL, GRADBUS_SUM), GRADBUS_INVALID);
  EXPECT_EQ(reduce("x", 1, GRADBUS_I64, GRADBUS_ADASUM), GRADBUS_INVALID);
  EXPECT_EQ(reduce("\xff\xfe", 1, GRADBUS_I64, GRADBUS_SUM), GRADBUS_INVALID);
  EXPECT_EQ(reduce("", 1, GRADBUS_I64, GRADBUS_SUM), GRADBUS_INVALID);
  EXPECT_EQ(reduce(std::string(300, 'n').c_str(), 1, GRADBUS_I64, GRADBUS_SUM), GRADBUS_INVALID);
  EXPECT_EQ(gradbus_broadcast(session, "b", &value, 1, GRADBUS_I64, 1), GRADBUS_INVALID);
  EXPECT_EQ(gradbus_broadcast(session, "b", &value, 1, GRADBUS_I64, -1), GRADBUS_INVALID);
  EXPECT_EQ(gradbus_allreduce(session, "n", nullptr, &value, 1, GRADBUS_I64, GRADBUS_SUM),
            GRADBUS_INVALID);
  EXPECT_EQ(gradbus_start(nullptr), GRADBUS_INVALID);
  EXPECT_EQ(gradbus_handle_wait(nullptr, 0), GRADBUS_INVALID);
  EXPECT_EQ(reduce("big", UINT64_MAX, GRADBUS_I64, GRADBUS_SUM), GRADBUS_EXHAUSTED);
}

// What the text means is the agent's business; that it can be passed on is ours.
TEST_F(Alone, ACompressionIsAShortTextOfUtf8) {
  gradbus_tensor_spec spec = spec_of("w", 10, GRADBUS_F32, GRADBUS_SUM);
  gradbus_tensor* tensor = nullptr;
  const std::string long_text(256, 'x');
  for (const char* text : {"\xff\xfe", long_text.c_str()}) {
    spec.compression = text;
    EXPECT_EQ(gradbus_register(session, &spec, 1, &tensor), GRADBUS_INVALID);
    EXPECT_NE(std::string(gradbus_last_error()).find("GB-O910"), std::string::npos);
  }
  spec.compression = "topk";
  EXPECT_EQ(gradbus_register(session, &spec, 1, &tensor), GRADBUS_OK) << gradbus_last_error();
  const char* policy = nullptr;
  EXPECT_EQ(gradbus_compression_for(session, "w", 1 << 20, 2, &policy), GRADBUS_OK);
  EXPECT_STREQ(policy, "none");
  EXPECT_EQ(gradbus_compression_for(session, nullptr, 1, 1, &policy), GRADBUS_INVALID);
}

// Expect: no agent, so nothing to try; what was not begun has no end.
TEST_F(Alone, HasNoMemoryOfGpusToTry) {
  const unsigned char device[16] = {7};
  const char* const nothing[3] = {};
  gradbus_device_trial trial;
  gradbus_device_trial_init(&trial);
  trial.count = 9;
  EXPECT_EQ(gradbus_device_tried(session, device, nothing), GRADBUS_INVALID);
  ASSERT_EQ(gradbus_try_device(session, device, &trial), GRADBUS_OK) << gradbus_last_error();
  EXPECT_EQ(trial.count, 0U);
  EXPECT_EQ(gradbus_device_tried(session, device, nothing), GRADBUS_OK) << gradbus_last_error();
  EXPECT_EQ(gradbus_device_tried(session, device, nothing), GRADBUS_INVALID);
  EXPECT_EQ(gradbus_try_device(session, nullptr, &trial), GRADBUS_INVALID);
  gradbus_tensor_spec spec = spec_of("w", 8, GRADBUS_F32, GRADBUS_SUM);
  spec.device = device;
  gradbus_tensor* tensor = nullptr;
  ASSERT_EQ(gradbus_register(session, &spec, 1, &tensor), GRADBUS_OK) << gradbus_last_error();
  gradbus_device_memory memory;
  EXPECT_EQ(gradbus_tensor_device_memory(tensor, &memory), GRADBUS_INVALID);
  EXPECT_THAT(gradbus_last_error(), testing::HasSubstr("or this process is alone"));
  EXPECT_EQ(gradbus_tensor_device_memory(tensor, nullptr), GRADBUS_INVALID);
  spec = spec_of("in host memory", 8, GRADBUS_F32, GRADBUS_SUM);
  ASSERT_EQ(gradbus_register(session, &spec, 1, &tensor), GRADBUS_OK) << gradbus_last_error();
  EXPECT_EQ(gradbus_tensor_device_memory(tensor, &memory), GRADBUS_INVALID);
}

// Expect: sizes that no version has are refused; fields of a newer version only when they are set.
TEST(Options, OtherStructSizes) {
  struct Newer {
    gradbus_options options;
    uint64_t field;
  } newer;
  gradbus_init_struct(&newer, sizeof(newer));
  newer.options.rank = newer.options.world_size = -1;
  gradbus_session* session = nullptr;
  ASSERT_EQ(gradbus_init(&newer.options, &session), GRADBUS_OK) << gradbus_last_error();
  gradbus_shutdown(session);
  newer.field = 1;
  EXPECT_EQ(gradbus_init(&newer.options, &session), GRADBUS_VERSION_SKEW);
  EXPECT_EQ(session, nullptr);
  newer.field = 0;
  for (const size_t bytes : {size_t{0}, size_t{8}, size_t{1} << 20, SIZE_MAX}) {
    newer.options.struct_bytes = bytes;
    EXPECT_EQ(gradbus_init(&newer.options, &session), GRADBUS_VERSION_SKEW) << bytes;
    EXPECT_NE(std::string(gradbus_last_error()).find("gradbus_options_init"), std::string::npos);
  }
}

TEST(Options, NoAgentForSeveralRanksIsSaid) {
  gradbus_options options;
  gradbus_options_init(&options);
  options.rank = 0;
  options.world_size = 2;
  options.socket_path = "/nonexistent/agent.sock";
  gradbus_session* session = nullptr;
  EXPECT_EQ(gradbus_init(&options, &session), GRADBUS_UNAVAILABLE);
  EXPECT_NE(std::string(gradbus_last_error()).find("/nonexistent/agent.sock"), std::string::npos);
}

TEST(CppWrapper, ThrowsAndGathers) {
  gradbus::Session session;
  gradbus::Tensor tensor = session.register_tensor("t", 4);
  tensor.data<float>()[0] = 3;
  tensor.start();
  tensor.wait();
  EXPECT_TRUE(tensor.test());
  const int32_t mine[] = {4, 5};
  EXPECT_EQ(session.allgather(mine, 2), (std::vector<int32_t>{4, 5}));
  EXPECT_THROW(session.register_tensor("", 4), gradbus::Error);
}

}  // namespace
