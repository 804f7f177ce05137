// The C interface in a world of one, which needs no daemon: values, and every misuse is an error.
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
  gradbus_tensor_spec spec{};
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

TEST_F(Alone, MisuseIsAnErrorThatNamesTheArgument) {
  int64_t value = 1;
  const auto reduce = [&](const char* name, uint64_t count, int dtype, int op) {
    return gradbus_allreduce(session, name, &value, &value, count,
                             static_cast<gradbus_dtype>(dtype), static_cast<gradbus_op>(op));
  };
  EXPECT_EQ(reduce("x", 1, 99, GRADBUS_SUM), GRADBUS_INVALID);
  EXPECT_NE(std::string(gradbus_last_error()).find("dtype number 99"), std::string::npos);
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

TEST(Options, AnotherStructSizeIsAVersionSkew) {
  gradbus_options options;
  gradbus_options_init(&options);
  options.struct_bytes += 8;
  gradbus_session* session = nullptr;
  EXPECT_EQ(gradbus_init(&options, &session), GRADBUS_VERSION_SKEW);
  EXPECT_EQ(session, nullptr);
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
