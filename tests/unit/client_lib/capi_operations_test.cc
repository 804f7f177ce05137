// Every collective through the C interface in a world of one: what it gives, and every misuse is an
// error that names the tensor. (Several ranks: tests/system/collectives/test_collectives.py.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gradbus/gradbus.h"
#include "gradbus/gradbus.hpp"

namespace {

using testing::HasSubstr;

struct Operations : testing::Test {
  void SetUp() override {
    ASSERT_EQ(gradbus_init(nullptr, &session), GRADBUS_OK) << gradbus_last_error();
    std::iota(in.begin(), in.end(), 1.0f);
  }
  void TearDown() override { EXPECT_EQ(gradbus_shutdown(session), GRADBUS_OK); }

  gradbus_operation operation(gradbus_collective collective, const char* name = "x") {
    gradbus_operation made;
    gradbus_operation_init(&made, collective);
    made.name = name;
    made.in = in.data();
    made.out = out.data();
    made.count = in.size();
    return made;
  }
  gradbus_code run(const gradbus_operation& given) {
    return gradbus_run_operation(session, &given, nullptr);
  }
  // INVALID, with a message that has all `parts`.
  void expect_refused(const gradbus_operation& given, const std::vector<std::string>& parts) {
    EXPECT_EQ(run(given), GRADBUS_INVALID);
    for (const std::string& part : parts) EXPECT_THAT(gradbus_last_error(), HasSubstr(part));
  }

  gradbus_session* session = nullptr;
  std::vector<float> in = std::vector<float>(6);
  std::vector<float> out = std::vector<float>(6);
};

TEST_F(Operations, EveryKindWithAnOutputCopiesInAWorldOfOne) {
  for (const auto collective : {GRADBUS_ALLREDUCE, GRADBUS_REDUCE, GRADBUS_REDUCESCATTER,
                                GRADBUS_BROADCAST, GRADBUS_SCATTER}) {
    out.assign(out.size(), 0);
    EXPECT_EQ(run(operation(collective)), GRADBUS_OK) << gradbus_last_error();
    EXPECT_EQ(out, in) << collective;
  }
}

TEST_F(Operations, EveryKindWithBlocksGivesThemWithTheirCounts) {
  for (const auto collective : {GRADBUS_ALLGATHER, GRADBUS_GATHER, GRADBUS_ALLTOALL}) {
    gradbus_handle* handle = nullptr;
    const gradbus_operation given = operation(collective);
    ASSERT_EQ(gradbus_run_operation(session, &given, &handle), GRADBUS_OK) << gradbus_last_error();
    const void* data = nullptr;
    uint64_t bytes = 0;
    const uint64_t* counts = nullptr;
    ASSERT_EQ(gradbus_handle_output_at(handle, 0, &data, &bytes, &counts), GRADBUS_OK);
    ASSERT_EQ(bytes, in.size() * sizeof(float));
    EXPECT_EQ(std::memcmp(data, in.data(), bytes), 0);
    EXPECT_EQ(counts[0], in.size());
    EXPECT_EQ(gradbus_handle_output_at(handle, 1, &data, &bytes, &counts), GRADBUS_INVALID);
    gradbus_handle_free(handle);
  }
}

TEST_F(Operations, FactorsMultiplyFloatsAndOnlyThem) {
  gradbus_operation scaled = operation(GRADBUS_ALLREDUCE);
  scaled.prescale = 3;
  scaled.postscale = 0.5;
  EXPECT_EQ(run(scaled), GRADBUS_OK) << gradbus_last_error();
  EXPECT_EQ(out[5], 9.0f);
  scaled.name = nullptr;  // unnamed ones with other factors do not meet
  EXPECT_EQ(run(scaled), GRADBUS_OK) << gradbus_last_error();
  EXPECT_EQ(out[5], 9.0f);
  for (const auto& [dtype, name] :
       {std::pair{GRADBUS_I32, "i32"}, std::pair{GRADBUS_I16, "i16"}, std::pair{GRADBUS_U16, "u16"},
        std::pair{GRADBUS_U32, "u32"}, std::pair{GRADBUS_U64, "u64"}}) {
    scaled.dtype = dtype;
    expect_refused(scaled, {"scale factors", name});
  }
  scaled.dtype = GRADBUS_F32;
  scaled.postscale = 0;
  expect_refused(scaled, {"scale factor is 0", "(unnamed)", "rank 0"});
}

TEST_F(Operations, AProcessSetOfOthersIsNull) {
  EXPECT_EQ(gradbus_rank(nullptr), -1);
  EXPECT_EQ(gradbus_size(nullptr), -1);
  EXPECT_EQ(gradbus_local_rank(nullptr), -1);
  EXPECT_EQ(gradbus_local_size(nullptr), -1);
  EXPECT_EQ(gradbus_cross_rank(nullptr), -1);
  EXPECT_EQ(gradbus_cross_size(nullptr), -1);
  EXPECT_STREQ(gradbus_job(nullptr), "");
  EXPECT_STREQ(gradbus_launcher(nullptr), "");
}

// The dtype of the C++ type, and as many bytes as it has.
template <typename T>
void expect_integers(gradbus::Session& session, gradbus_dtype dtype) {
  EXPECT_EQ(gradbus::dtype_of<T>::value, dtype);
  const T all[] = {std::numeric_limits<T>::min(), 1, std::numeric_limits<T>::max()};
  for (const auto op : {GRADBUS_SUM, GRADBUS_AVERAGE, GRADBUS_MIN, GRADBUS_MAX, GRADBUS_PRODUCT,
                        GRADBUS_BAND, GRADBUS_BOR}) {
    T mine[] = {all[0], all[1], all[2]};
    session.allreduce(mine, 3, op);
    EXPECT_TRUE(std::ranges::equal(mine, all)) << dtype << " " << op;
  }
  gradbus::Tensor tensor = session.register_tensor("of " + std::to_string(dtype), 3, dtype);
  std::ranges::copy(all, tensor.data<T>());
  tensor.start();
  tensor.wait();
  EXPECT_TRUE(std::ranges::equal(std::span(tensor.data<T>(), 3), all)) << dtype;
}

TEST(Integers, OfEveryWidthAreReduced) {
  gradbus::Session session;
  expect_integers<int8_t>(session, GRADBUS_I8);
  expect_integers<uint8_t>(session, GRADBUS_U8);
  expect_integers<int16_t>(session, GRADBUS_I16);
  expect_integers<uint16_t>(session, GRADBUS_U16);
  expect_integers<int32_t>(session, GRADBUS_I32);
  expect_integers<uint32_t>(session, GRADBUS_U32);
  expect_integers<int64_t>(session, GRADBUS_I64);
  expect_integers<uint64_t>(session, GRADBUS_U64);
}

TEST_F(Operations, AdasumOfOneIsItselfAndIsScaled) {
  gradbus_operation adasum = operation(GRADBUS_ALLREDUCE);
  adasum.op = GRADBUS_ADASUM;
  EXPECT_EQ(run(adasum), GRADBUS_OK) << gradbus_last_error();
  EXPECT_EQ(out, in);
  adasum.prescale = 4;
  adasum.postscale = 0.5;
  EXPECT_EQ(run(adasum), GRADBUS_OK) << gradbus_last_error();
  EXPECT_EQ(out[2], 6.0f);
  adasum.collective = GRADBUS_REDUCE;
  expect_refused(adasum, {"tensor \"x\"", "op number 8"});
}

TEST_F(Operations, AGroupHasOneHandleAndOneEnd) {
  std::vector<float> second(2);
  gradbus_operation group[3] = {operation(GRADBUS_ALLREDUCE, "a"),
                                operation(GRADBUS_ALLGATHER, "b"),
                                operation(GRADBUS_REDUCESCATTER, "c")};
  group[2].out = second.data();
  group[2].count = 2;
  gradbus_handle* handle = nullptr;
  ASSERT_EQ(gradbus_start_operations(session, group, 3, &handle), GRADBUS_OK);
  ASSERT_EQ(gradbus_handle_wait(handle, 10'000), GRADBUS_OK) << gradbus_last_error();
  EXPECT_EQ(gradbus_handle_test(handle), GRADBUS_OK);
  EXPECT_EQ(out, in);
  EXPECT_EQ(second[1], 2.0f);
  const void* data = nullptr;
  uint64_t bytes = 0;
  const uint64_t* counts = nullptr;
  ASSERT_EQ(gradbus_handle_output_at(handle, 0, &data, &bytes, &counts), GRADBUS_OK);
  EXPECT_EQ(bytes, 0u);
  EXPECT_EQ(counts, nullptr) << "an all-reduce has no blocks";
  ASSERT_EQ(gradbus_handle_output_at(handle, 1, &data, &bytes, &counts), GRADBUS_OK);
  EXPECT_EQ(bytes, 24u);
  gradbus_handle_free(handle);
}

TEST_F(Operations, OfAGroupWithABadMemberNoneStarts) {
  gradbus_operation group[2] = {operation(GRADBUS_ALLREDUCE, "a"),
                                operation(GRADBUS_ALLREDUCE, "b")};
  group[1].root = 9;  // not used by an all-reduce
  group[1].dtype = static_cast<gradbus_dtype>(77);
  gradbus_handle* handle = nullptr;
  EXPECT_EQ(gradbus_start_operations(session, group, 2, &handle), GRADBUS_INVALID);
  EXPECT_THAT(gradbus_last_error(), HasSubstr("tensor \"b\""));
  EXPECT_EQ(handle, nullptr);
  EXPECT_EQ(out, std::vector<float>(6)) << "the first one was not run";
  EXPECT_EQ(gradbus_start_operations(session, nullptr, 0, &handle), GRADBUS_OK) << "an empty group";
  EXPECT_EQ(gradbus_handle_wait(handle, 0), GRADBUS_OK);
  gradbus_handle_free(handle);
}

TEST_F(Operations, WhatIsWrongIsNamed) {
  gradbus_operation bad = operation(GRADBUS_REDUCE);
  bad.root = 1;
  expect_refused(bad, {"tensor \"x\"", "root 1"});
  bad.root = -1;
  expect_refused(bad, {"root -1"});
  bad = operation(GRADBUS_REDUCESCATTER);
  bad.row_elements = 4;
  expect_refused(bad, {"6 elements are not whole rows of 4"});
  bad.row_elements = 0;
  expect_refused(bad, {"rows of 0"});
  bad = operation(GRADBUS_ALLTOALL);
  const uint64_t counts[] = {5};
  bad.send_counts = counts;
  expect_refused(bad, {"all_to_all", "tensor \"x\"", "rank 0", "6 elements"});
  const uint64_t wrapping[] = {UINT64_MAX};
  bad.send_counts = wrapping;
  expect_refused(bad, {"send_counts"});
  bad = operation(static_cast<gradbus_collective>(9));
  expect_refused(bad, {"collective number 9"});
  for (const auto collective : {GRADBUS_ALLREDUCE, GRADBUS_SCATTER, GRADBUS_GATHER}) {
    bad = operation(collective);
    bad.in = nullptr;
    expect_refused(bad, {"tensor \"x\"", "in is NULL"});
  }
  for (const auto collective : {GRADBUS_BROADCAST, GRADBUS_REDUCESCATTER, GRADBUS_REDUCE}) {
    bad = operation(collective);
    bad.out = nullptr;
    expect_refused(bad, {"tensor \"x\"", "out is NULL"});
  }
  bad = operation(GRADBUS_ALLREDUCE);
  bad.struct_bytes = 8;
  EXPECT_EQ(run(bad), GRADBUS_VERSION_SKEW);
  EXPECT_EQ(gradbus_run_operation(session, nullptr, nullptr), GRADBUS_INVALID);
}

TEST_F(Operations, NothingNeedsNoBuffers) {
  for (int collective = GRADBUS_ALLREDUCE; collective <= GRADBUS_ALLTOALL; ++collective) {
    gradbus_operation empty = operation(static_cast<gradbus_collective>(collective));
    empty.in = nullptr;
    empty.out = nullptr;
    empty.count = 0;
    EXPECT_EQ(run(empty), GRADBUS_OK) << collective << gradbus_last_error();
  }
}

TEST_F(Operations, RegisteredTensorsOfEveryReductionGoRound) {
  gradbus_tensor_spec specs[3];
  for (gradbus_tensor_spec& spec : specs) gradbus_tensor_spec_init(&spec);
  const char* names[] = {"sum", "min", "shard"};
  for (int i = 0; i < 3; ++i) {
    specs[i].name = names[i];
    specs[i].count = 6;
    specs[i].dtype = GRADBUS_F32;
    specs[i].op = i == 1 ? GRADBUS_MIN : GRADBUS_SUM;
  }
  specs[0].prescale = 2;
  specs[1].collective = GRADBUS_REDUCE;
  specs[2].collective = GRADBUS_REDUCESCATTER;
  specs[2].row_elements = 3;
  gradbus_tensor* tensors[3] = {};
  ASSERT_EQ(gradbus_register(session, specs, 3, tensors), GRADBUS_OK) << gradbus_last_error();
  for (int i = 0; i < 3; ++i) {
    auto* data = static_cast<float*>(gradbus_tensor_data(tensors[i]));
    data[5] = 7;
    ASSERT_EQ(gradbus_start(tensors[i]), GRADBUS_OK);
    ASSERT_EQ(gradbus_wait(tensors[i], 10'000), GRADBUS_OK) << gradbus_last_error();
    EXPECT_EQ(data[5], i == 0 ? 14 : 7);
  }
  specs[0].name = "other";
  specs[0].collective = GRADBUS_BROADCAST;
  EXPECT_EQ(gradbus_register(session, specs, 1, tensors), GRADBUS_INVALID);
  EXPECT_THAT(gradbus_last_error(), HasSubstr("\"other\""));
}

TEST_F(Operations, AShardIsWholeRowsAsEvenAsCanBe) {
  uint64_t first = 1;
  uint64_t elements = 0;
  EXPECT_EQ(gradbus_shard(session, 0, 12, 4, &first, &elements), GRADBUS_OK);
  EXPECT_EQ(first, 0u);
  EXPECT_EQ(elements, 12u);
  EXPECT_EQ(gradbus_shard(session, 1, 12, 4, &first, &elements), GRADBUS_INVALID);
  EXPECT_EQ(gradbus_shard(session, 0, 12, 5, &first, &elements), GRADBUS_INVALID);
}

TEST_F(Operations, AProcessSetOfOneNeedsNoDaemon) {
  gradbus_session* set = nullptr;
  const int32_t ranks[] = {0};
  ASSERT_EQ(gradbus_process_set(session, ranks, 1, &set), GRADBUS_OK) << gradbus_last_error();
  ASSERT_NE(set, nullptr);
  EXPECT_EQ(gradbus_size(set), 1);
  EXPECT_THAT(gradbus_job(set), HasSubstr("/0"));
  EXPECT_EQ(gradbus_barrier(set), GRADBUS_OK);
  gradbus_shutdown(set);
  const int32_t bad[][2] = {{0, 0}, {0, 1}, {-1, 0}};
  for (const auto& list : bad) {
    EXPECT_EQ(gradbus_process_set(session, list, 2, &set), GRADBUS_INVALID);
    EXPECT_THAT(gradbus_last_error(), HasSubstr("[" + std::to_string(list[0])));
    EXPECT_EQ(set, nullptr);
  }
  EXPECT_EQ(gradbus_process_set(session, nullptr, 0, &set), GRADBUS_INVALID);
}

TEST(CppOperations, GiveWhatTheCOnesGive) {
  gradbus::Session session;
  const int8_t mine[] = {4, 5, 6};
  EXPECT_EQ(session.gather(mine, 3), (std::vector<int8_t>{4, 5, 6}));
  EXPECT_EQ(session.scatter(mine, 3), (std::vector<int8_t>{4, 5, 6}));
  EXPECT_EQ(session.reduce_scatter(mine, 3, 3, GRADBUS_MAX), (std::vector<int8_t>{4, 5, 6}));
  int8_t out[3] = {};
  session.reduce(mine, out, 3);
  EXPECT_EQ(out[2], 6);
  const gradbus::Blocks<int8_t> blocks = session.alltoall(mine, {3});
  EXPECT_EQ(blocks.elements, (std::vector<int8_t>{4, 5, 6}));
  EXPECT_EQ(blocks.counts, (std::vector<uint64_t>{3}));
  EXPECT_THROW(session.alltoall(mine, {1, 2}), gradbus::Error);
  EXPECT_EQ(session.allgather(mine, 0), std::vector<int8_t>());
  gradbus::Session set = session.process_set({0});
  set.barrier();
  gradbus::Handle handle =
      session.start({gradbus::Session::describe(GRADBUS_ALLGATHER, "g", mine, 2),
                     gradbus::Session::describe(GRADBUS_ALLGATHER, "h", mine, 1)});
  handle.wait();
  EXPECT_TRUE(handle.test());
  EXPECT_EQ(handle.blocks<int8_t>(1, 1).elements, (std::vector<int8_t>{4}));
}

}  // namespace
