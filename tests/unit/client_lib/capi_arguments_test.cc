// Wrong arguments of every function of gradbus.h: each is an error whose message names the
// argument. One row per mistake, in a world of one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gradbus/gradbus.h"

namespace {

using testing::HasSubstr;

// What the rows change before they make their call.
struct Callers {
  gradbus_session* session = nullptr;
  gradbus_tensor* tensor = nullptr;
  gradbus_handle* handle = nullptr;  // of an operation that has ended
  gradbus_tensor_spec spec;
  gradbus_operation operation;
  gradbus_options options;
  gradbus_mode mode;
  gradbus_mode_change change;
  gradbus_device_trial trial;
  gradbus_device_rank_buffer rank_buffer;
  std::vector<float> in = std::vector<float>(6);
  std::vector<float> out = std::vector<float>(6);
  // Results
  gradbus_session* other_session = nullptr;
  gradbus_tensor* other_tensor = nullptr;
  gradbus_handle* other_handle = nullptr;
  gradbus_mapping* mapping = nullptr;
  const void* data = nullptr;
  const char* text = nullptr;
  uint64_t number = 0;
  uint64_t number_too = 0;
  size_t bytes = 0;
  int found = 0;
  int32_t drained = 0;
  char answer[16] = {};
  const unsigned char device[16] = {7};
  const uint64_t shape[3] = {2, 2, 2};
  const int32_t ranks[2] = {0, 0};
  const char* const why_not[3] = {};
};

struct Mistake {
  const char* name;
  std::function<gradbus_code(Callers&)> call;
  gradbus_code code;
  std::string named;
};

gradbus_code init(Callers& c) { return gradbus_init(&c.options, &c.other_session); }
gradbus_code add(Callers& c) { return gradbus_register(c.session, &c.spec, 1, &c.other_tensor); }
gradbus_code run(Callers& c) { return gradbus_run_operation(c.session, &c.operation, nullptr); }
template <typename T>
T number_of(int64_t number) {
  return static_cast<T>(number);
}

// A row with one statement before the call.
#define GRADBUS_SET(set, call) \
  [](Callers& c) {             \
    set;                       \
    return call;               \
  }                                                                         // NOLINT
#define GRADBUS_ROW(call) []([[maybe_unused]] Callers& c) { return call; }  // NOLINT

const std::vector<Mistake> kSessionMistakes = {
    {"init", GRADBUS_ROW(gradbus_init(&c.options, nullptr)), GRADBUS_INVALID, "argument session"},
    {"init_size", GRADBUS_SET(c.options.struct_bytes = 3, init(c)), GRADBUS_VERSION_SKEW,
     "gradbus_options.struct_bytes is 3"},
    {"init_half", GRADBUS_SET(c.options.rank = 0, init(c)), GRADBUS_INVALID, "world size"},
    {"init_rank", GRADBUS_SET(c.options.rank = 2; c.options.world_size = 2, init(c)),
     GRADBUS_INVALID, "rank 2"},
    {"init_world", GRADBUS_SET(c.options.rank = 0; c.options.world_size = INT64_MAX, init(c)),
     GRADBUS_INVALID, "world size"},
    {"init_no_world", GRADBUS_SET(c.options.rank = 0; c.options.world_size = 0, init(c)),
     GRADBUS_INVALID, "world size 0"},
    {"init_below", GRADBUS_SET(c.options.rank = c.options.world_size = -2, init(c)),
     GRADBUS_INVALID, "rank -2"},
    {"job_secret", GRADBUS_ROW(gradbus_job_secret(c.session, nullptr)), GRADBUS_INVALID,
     "argument secret"},
    {"job_secret_session", GRADBUS_ROW(gradbus_job_secret(nullptr, nullptr)), GRADBUS_INVALID,
     "argument session"},
    {"compression_for", GRADBUS_ROW(gradbus_compression_for(nullptr, "w", 1, 1, &c.text)),
     GRADBUS_INVALID, "argument session"},
    {"compression_for_tensor",
     GRADBUS_ROW(gradbus_compression_for(c.session, nullptr, 1, 1, &c.text)), GRADBUS_INVALID,
     "argument tensor"},
    {"compression_for_result", GRADBUS_ROW(gradbus_compression_for(c.session, "w", 1, 1, nullptr)),
     GRADBUS_INVALID, "argument compression"},
    {"mode_for", GRADBUS_ROW(gradbus_mode_for(nullptr, "w", 1, 1, nullptr, &c.mode)),
     GRADBUS_INVALID, "argument session"},
    {"mode_for_tensor", GRADBUS_ROW(gradbus_mode_for(c.session, nullptr, 1, 1, nullptr, &c.mode)),
     GRADBUS_INVALID, "argument tensor"},
    {"mode_for_mode", GRADBUS_ROW(gradbus_mode_for(c.session, "w", 1, 1, nullptr, nullptr)),
     GRADBUS_INVALID, "argument mode"},
    {"mode_for_asked", GRADBUS_ROW(gradbus_mode_for(c.session, "w", 1, 1, "delaid", &c.mode)),
     GRADBUS_INVALID, "delaid"},
    {"mode_for_size",
     GRADBUS_SET(c.mode.struct_bytes = 0, gradbus_mode_for(c.session, "w", 1, 1, "sync", &c.mode)),
     GRADBUS_VERSION_SKEW, "gradbus_mode.struct_bytes is 0"},
    {"mode_change", GRADBUS_ROW(gradbus_next_mode_change(c.session, nullptr, &c.found)),
     GRADBUS_INVALID, "argument change"},
    {"mode_change_found", GRADBUS_ROW(gradbus_next_mode_change(c.session, &c.change, nullptr)),
     GRADBUS_INVALID, "argument found"},
    {"mode_change_session", GRADBUS_ROW(gradbus_next_mode_change(nullptr, &c.change, &c.found)),
     GRADBUS_INVALID, "argument session"},
    {"mode_change_size",
     GRADBUS_SET(c.change.struct_bytes = SIZE_MAX,
                 gradbus_next_mode_change(c.session, &c.change, &c.found)),
     GRADBUS_VERSION_SKEW, "gradbus_mode_change.struct_bytes"},
    {"report_loss", GRADBUS_ROW(gradbus_report_loss(nullptr, 1)), GRADBUS_INVALID,
     "argument session"},
    {"trace", GRADBUS_ROW(gradbus_trace(nullptr, "step", 1, 2)), GRADBUS_INVALID,
     "argument session"},
    {"trace_name", GRADBUS_ROW(gradbus_trace(c.session, nullptr, 1, 2)), GRADBUS_INVALID,
     "argument name"},
    {"trace_no_name", GRADBUS_ROW(gradbus_trace(c.session, "", 1, 2)), GRADBUS_INVALID,
     "argument name"},
    {"trace_end", GRADBUS_ROW(gradbus_trace(c.session, "step", 2, 1)), GRADBUS_INVALID,
     "ends before it begins"},
    {"ask", GRADBUS_ROW(gradbus_ask_coordinator(c.session, nullptr, c.answer, 16, &c.bytes)),
     GRADBUS_INVALID, "argument question"},
    {"ask_answer", GRADBUS_ROW(gradbus_ask_coordinator(c.session, "{}", nullptr, 16, &c.bytes)),
     GRADBUS_INVALID, "argument answer"},
    {"ask_bytes", GRADBUS_ROW(gradbus_ask_coordinator(c.session, "{}", c.answer, 16, nullptr)),
     GRADBUS_INVALID, "argument answer_bytes"},
    {"process_set", GRADBUS_ROW(gradbus_process_set(c.session, c.ranks, 1, nullptr)),
     GRADBUS_INVALID, "argument set"},
    {"process_set_session", GRADBUS_ROW(gradbus_process_set(nullptr, c.ranks, 1, &c.other_session)),
     GRADBUS_INVALID, "argument session"},
    {"process_set_ranks", GRADBUS_ROW(gradbus_process_set(c.session, nullptr, 1, &c.other_session)),
     GRADBUS_INVALID, "argument ranks"},
    {"process_set_n",
     GRADBUS_ROW(gradbus_process_set(c.session, c.ranks, SIZE_MAX, &c.other_session)),
     GRADBUS_INVALID, "argument n"},
    {"process_set_twice", GRADBUS_ROW(gradbus_process_set(c.session, c.ranks, 2, &c.other_session)),
     GRADBUS_INVALID, "rank 0 twice"},
    {"try_device", GRADBUS_ROW(gradbus_try_device(c.session, nullptr, &c.trial)), GRADBUS_INVALID,
     "argument device"},
    {"try_device_trial", GRADBUS_ROW(gradbus_try_device(c.session, c.device, nullptr)),
     GRADBUS_INVALID, "argument trial"},
    {"try_device_size",
     GRADBUS_SET(c.trial.struct_bytes = 1, gradbus_try_device(c.session, c.device, &c.trial)),
     GRADBUS_VERSION_SKEW, "gradbus_device_trial.struct_bytes"},
    {"device_tried", GRADBUS_ROW(gradbus_device_tried(c.session, c.device, nullptr)),
     GRADBUS_INVALID, "argument why_not"},
    {"device_tried_device", GRADBUS_ROW(gradbus_device_tried(c.session, nullptr, c.why_not)),
     GRADBUS_INVALID, "argument device"},
    {"shard", GRADBUS_ROW(gradbus_shard(nullptr, 0, 4, 1, &c.number, &c.number_too)),
     GRADBUS_INVALID, "argument session"},
    {"shard_rank", GRADBUS_ROW(gradbus_shard(c.session, -1, 4, 1, &c.number, &c.number_too)),
     GRADBUS_INVALID, "rank -1"},
    {"shard_rows", GRADBUS_ROW(gradbus_shard(c.session, 0, 4, 0, &c.number, &c.number_too)),
     GRADBUS_INVALID, "rows of 0"},
    {"shard_first", GRADBUS_ROW(gradbus_shard(c.session, 0, 4, 1, nullptr, &c.number_too)),
     GRADBUS_INVALID, "argument first"},
    {"shard_elements", GRADBUS_ROW(gradbus_shard(c.session, 0, 4, 1, &c.number, nullptr)),
     GRADBUS_INVALID, "argument elements"},
};

const std::vector<Mistake> kTensorMistakes = {
    {"register", GRADBUS_ROW(gradbus_register(nullptr, &c.spec, 1, &c.other_tensor)),
     GRADBUS_INVALID, "argument session"},
    {"register_specs", GRADBUS_ROW(gradbus_register(c.session, nullptr, 1, &c.other_tensor)),
     GRADBUS_INVALID, "argument specs"},
    {"register_tensors", GRADBUS_ROW(gradbus_register(c.session, &c.spec, 1, nullptr)),
     GRADBUS_INVALID, "argument tensors"},
    {"register_n", GRADBUS_ROW(gradbus_register(c.session, &c.spec, SIZE_MAX, &c.other_tensor)),
     GRADBUS_INVALID, "argument n"},
    {"register_size", GRADBUS_SET(c.spec.struct_bytes = 7, add(c)), GRADBUS_VERSION_SKEW,
     "gradbus_tensor_spec.struct_bytes is 7"},
    {"register_no_name", GRADBUS_SET(c.spec.name = nullptr, add(c)), GRADBUS_INVALID,
     "specs[].name"},
    {"register_empty_name", GRADBUS_SET(c.spec.name = "", add(c)), GRADBUS_INVALID, "name"},
    {"register_dtype", GRADBUS_SET(c.spec.dtype = number_of<gradbus_dtype>(99), add(c)),
     GRADBUS_INVALID, "dtype number 99"},
    {"register_no_dtype", GRADBUS_SET(c.spec.dtype = number_of<gradbus_dtype>(0), add(c)),
     GRADBUS_INVALID, "dtype number 0"},
    {"register_op", GRADBUS_SET(c.spec.op = number_of<gradbus_op>(-1), add(c)), GRADBUS_INVALID,
     "op number"},
    {"register_collective",
     GRADBUS_SET(c.spec.collective = number_of<gradbus_collective>(77), add(c)), GRADBUS_INVALID,
     "collective number 77"},
    {"register_root", GRADBUS_SET(c.spec.collective = GRADBUS_REDUCE; c.spec.root = -3, add(c)),
     GRADBUS_INVALID, "root -3"},
    {"register_prescale", GRADBUS_SET(c.spec.prescale = NAN, add(c)), GRADBUS_INVALID,
     "scale factor"},
    {"register_postscale", GRADBUS_SET(c.spec.postscale = HUGE_VAL, add(c)), GRADBUS_INVALID,
     "scale factor"},
    {"register_count", GRADBUS_SET(c.spec.count = UINT64_MAX, add(c)), GRADBUS_EXHAUSTED,
     "elements"},
    {"register_rows",
     GRADBUS_SET(c.spec.collective = GRADBUS_REDUCESCATTER; c.spec.row_elements = 4, add(c)),
     GRADBUS_INVALID, "rows of 4"},
    {"register_mode", GRADBUS_SET(c.spec.mode = "no such mode", add(c)), GRADBUS_INVALID,
     "no such mode"},
    {"register_compression", GRADBUS_SET(c.spec.compression = "\xff", add(c)), GRADBUS_INVALID,
     "compression"},
    {"register_priority", GRADBUS_SET(c.spec.priority = UINT32_MAX, add(c)), GRADBUS_INVALID,
     "priority"},
    {"register_budget", GRADBUS_SET(c.spec.budget_bytes = UINT64_MAX, add(c)), GRADBUS_INVALID,
     "budget"},
    {"unregister", GRADBUS_ROW(gradbus_unregister(nullptr)), GRADBUS_INVALID, "argument tensor"},
    {"unregister_twice",
     [](Callers& c) {
       EXPECT_EQ(gradbus_unregister(c.tensor), GRADBUS_OK) << gradbus_last_error();
       return gradbus_unregister(c.tensor);
     },
     GRADBUS_INVALID, "\"known\" was unregistered"},
    {"unregister_name", GRADBUS_ROW(gradbus_unregister_name(c.session, nullptr)), GRADBUS_INVALID,
     "argument name"},
    {"unregister_no_name", GRADBUS_ROW(gradbus_unregister_name(c.session, "nobody")),
     GRADBUS_INVALID, "\"nobody\""},
    {"mapping", GRADBUS_ROW(gradbus_tensor_mapping(c.tensor, nullptr)), GRADBUS_INVALID,
     "argument mapping"},
    {"mapping_tensor", GRADBUS_ROW(gradbus_tensor_mapping(nullptr, &c.mapping)), GRADBUS_INVALID,
     "argument tensor"},
    {"start", GRADBUS_ROW(gradbus_start(nullptr)), GRADBUS_INVALID, "argument tensor"},
    {"test", GRADBUS_ROW(gradbus_test(nullptr)), GRADBUS_INVALID, "argument tensor"},
    {"wait", GRADBUS_ROW(gradbus_wait(nullptr, -1)), GRADBUS_INVALID, "argument tensor"},
    {"drain", GRADBUS_ROW(gradbus_drain(c.tensor, -1, nullptr)), GRADBUS_INVALID, "argument found"},
    {"drain_tensor", GRADBUS_ROW(gradbus_drain(nullptr, -1, &c.drained)), GRADBUS_INVALID,
     "argument tensor"},
    {"rate", GRADBUS_ROW(gradbus_set_learning_rate(c.tensor, -1)), GRADBUS_INVALID,
     "learning rate is -1"},
    {"rate_tensor", GRADBUS_ROW(gradbus_set_learning_rate(nullptr, 1)), GRADBUS_INVALID,
     "argument tensor"},
    {"pull", GRADBUS_ROW(gradbus_start_pull(nullptr)), GRADBUS_INVALID, "argument tensor"},
    {"read_part", GRADBUS_ROW(gradbus_start_read_optimizer_state(c.tensor, UINT32_MAX)),
     GRADBUS_INVALID, "part 4294967295"},
    {"write_part", GRADBUS_ROW(gradbus_start_write_optimizer_state(c.tensor, 9)), GRADBUS_INVALID,
     "part 9"},
    {"read_residual",
     GRADBUS_ROW(gradbus_start_read_residual_state(c.tensor, number_of<gradbus_residual_state>(3))),
     GRADBUS_INVALID, "part 3"},
    {"write_residual", GRADBUS_ROW(gradbus_start_write_residual_state(nullptr, GRADBUS_RESIDUAL)),
     GRADBUS_INVALID, "argument tensor"},
    {"scale_residual", GRADBUS_ROW(gradbus_scale_residual_state(c.tensor, 0)), GRADBUS_INVALID,
     "scaled by 0"},
    {"rank_buffer", GRADBUS_ROW(gradbus_tensor_device_rank_buffer(c.tensor, nullptr)),
     GRADBUS_INVALID, "argument rank_buffer"},
    {"rank_buffer_tensor", GRADBUS_ROW(gradbus_tensor_device_rank_buffer(nullptr, &c.rank_buffer)),
     GRADBUS_INVALID, "argument tensor"},
    {"device_memory", GRADBUS_ROW(gradbus_tensor_device_memory(c.tensor, nullptr)), GRADBUS_INVALID,
     "argument memory"},
};

const std::vector<Mistake> kOperationMistakes = {
    {"operation_session", GRADBUS_ROW(gradbus_run_operation(nullptr, &c.operation, nullptr)),
     GRADBUS_INVALID, "argument session"},
    {"operation", GRADBUS_ROW(gradbus_run_operation(c.session, nullptr, nullptr)), GRADBUS_INVALID,
     "argument operation"},
    {"operations", GRADBUS_ROW(gradbus_start_operations(c.session, nullptr, 1, &c.other_handle)),
     GRADBUS_INVALID, "argument operations"},
    {"operations_handle",
     GRADBUS_ROW(gradbus_start_operations(c.session, &c.operation, 1, nullptr)), GRADBUS_INVALID,
     "argument handle"},
    {"operations_n",
     GRADBUS_ROW(gradbus_start_operations(c.session, &c.operation, SIZE_MAX, &c.other_handle)),
     GRADBUS_INVALID, "argument n"},
    {"operation_size", GRADBUS_SET(c.operation.struct_bytes = 1 << 20, run(c)),
     GRADBUS_VERSION_SKEW, "gradbus_operation.struct_bytes"},
    {"collective", GRADBUS_SET(c.operation.collective = number_of<gradbus_collective>(0), run(c)),
     GRADBUS_INVALID, "collective number 0"},
    {"dtype", GRADBUS_SET(c.operation.dtype = number_of<gradbus_dtype>(-1), run(c)),
     GRADBUS_INVALID, "dtype number"},
    {"op", GRADBUS_SET(c.operation.op = number_of<gradbus_op>(1000), run(c)), GRADBUS_INVALID,
     "op number"},
    {"name", GRADBUS_SET(c.operation.name = "", run(c)), GRADBUS_INVALID, "name"},
    {"in", GRADBUS_SET(c.operation.in = nullptr, run(c)), GRADBUS_INVALID, "argument in"},
    {"out", GRADBUS_SET(c.operation.out = nullptr, run(c)), GRADBUS_INVALID, "argument out"},
    {"count", GRADBUS_SET(c.operation.count = UINT64_MAX, run(c)), GRADBUS_EXHAUSTED, "elements"},
    {"root",
     GRADBUS_SET(c.operation.collective = GRADBUS_BROADCAST; c.operation.root = INT32_MIN, run(c)),
     GRADBUS_INVALID, "root -2147483648"},
    {"prescale", GRADBUS_SET(c.operation.prescale = -HUGE_VAL, run(c)), GRADBUS_INVALID,
     "scale factor"},
    {"no_shape", GRADBUS_SET(c.operation.dims = 2, run(c)), GRADBUS_INVALID, "argument shape"},
    {"shape", GRADBUS_SET(c.operation.dims = 2; c.operation.shape = c.shape, run(c)),
     GRADBUS_INVALID, "argument shape is not that of count=6"},
    {"dims", GRADBUS_SET(c.operation.dims = UINT32_MAX; c.operation.shape = c.shape, run(c)),
     GRADBUS_INVALID, "argument dims is 4294967295"},
    {"compression", GRADBUS_SET(c.operation.compression = "\xff", run(c)), GRADBUS_INVALID,
     "compression"},
    {"all_to_all",
     GRADBUS_SET(c.operation.collective = GRADBUS_ALLTOALL;
                 c.operation.send_counts = c.shape, run(c)),
     GRADBUS_INVALID, "send_counts"},
    {"all_reduce",
     GRADBUS_ROW(
         gradbus_allreduce(nullptr, "x", c.in.data(), c.out.data(), 6, GRADBUS_F32, GRADBUS_SUM)),
     GRADBUS_INVALID, "argument session"},
    {"all_reduce_async",
     GRADBUS_ROW(gradbus_allreduce_async(c.session, "x", c.in.data(), c.out.data(), 6, GRADBUS_F32,
                                         GRADBUS_SUM, nullptr)),
     GRADBUS_INVALID, "argument handle"},
    {"broadcast", GRADBUS_ROW(gradbus_broadcast(c.session, "x", nullptr, 6, GRADBUS_F32, 0)),
     GRADBUS_INVALID, "argument out"},
    {"broadcast_async",
     GRADBUS_ROW(
         gradbus_broadcast_async(c.session, "x", c.in.data(), 6, GRADBUS_F32, 5, &c.other_handle)),
     GRADBUS_INVALID, "root 5"},
    {"all_gather_async",
     GRADBUS_ROW(gradbus_allgather_async(c.session, "x", nullptr, 6, GRADBUS_F32, &c.other_handle)),
     GRADBUS_INVALID, "argument in"},
    {"barrier", GRADBUS_ROW(gradbus_barrier(nullptr)), GRADBUS_INVALID, "argument session"},
    {"handle_test", GRADBUS_ROW(gradbus_handle_test(nullptr)), GRADBUS_INVALID, "argument handle"},
    {"handle_wait", GRADBUS_ROW(gradbus_handle_wait(nullptr, -1)), GRADBUS_INVALID,
     "argument handle"},
    {"output_data", GRADBUS_ROW(gradbus_handle_output(c.handle, nullptr, &c.number, nullptr)),
     GRADBUS_INVALID, "argument data"},
    {"output_bytes", GRADBUS_ROW(gradbus_handle_output(c.handle, &c.data, nullptr, nullptr)),
     GRADBUS_INVALID, "argument bytes"},
    {"output_index",
     GRADBUS_ROW(gradbus_handle_output_at(c.handle, SIZE_MAX, &c.data, &c.number, nullptr)),
     GRADBUS_INVALID, "index"},
    {"freed_handle", GRADBUS_SET(gradbus_handle_free(c.handle), gradbus_handle_wait(c.handle, 0)),
     GRADBUS_INVALID, "argument handle is no handle"},
    {"freed_handle_output",
     GRADBUS_SET(gradbus_handle_free(c.handle),
                 gradbus_handle_output(c.handle, &c.data, &c.number, nullptr)),
     GRADBUS_INVALID, "argument handle is no handle"},
    {"handle_of_nobody", GRADBUS_ROW(gradbus_handle_test(reinterpret_cast<gradbus_handle*>(&c))),
     GRADBUS_INVALID, "argument handle is no handle"},
};

#undef GRADBUS_SET
#undef GRADBUS_ROW

struct Prepared : testing::Test {
  void SetUp() override {
    ASSERT_EQ(gradbus_init(nullptr, &callers.session), GRADBUS_OK) << gradbus_last_error();
    gradbus_options_init(&callers.options);
    gradbus_mode_init(&callers.mode);
    gradbus_mode_change_init(&callers.change);
    gradbus_device_trial_init(&callers.trial);
    gradbus_device_rank_buffer_init(&callers.rank_buffer);
    gradbus_tensor_spec_init(&callers.spec);
    callers.spec.count = 6;
    callers.spec.dtype = GRADBUS_F32;
    callers.spec.op = GRADBUS_SUM;
    callers.spec.name = "known";
    ASSERT_EQ(gradbus_register(callers.session, &callers.spec, 1, &callers.tensor), GRADBUS_OK);
    callers.spec.name = "new";
    gradbus_operation_init(&callers.operation, GRADBUS_ALLREDUCE);
    callers.operation.name = "x";
    callers.operation.in = callers.in.data();
    callers.operation.out = callers.out.data();
    callers.operation.count = 6;
    ASSERT_EQ(gradbus_run_operation(callers.session, &callers.operation, &callers.handle),
              GRADBUS_OK);
  }
  void TearDown() override {
    gradbus_handle_free(callers.handle);
    gradbus_handle_free(callers.handle);  // a second time
    EXPECT_EQ(gradbus_shutdown(callers.session), GRADBUS_OK);
    EXPECT_EQ(gradbus_shutdown(callers.session), GRADBUS_CLOSED);
    EXPECT_THAT(gradbus_last_error(), HasSubstr("GB-O908"));
  }
  Callers callers;
};
struct Arguments : Prepared, testing::WithParamInterface<Mistake> {};

TEST_P(Arguments, ThatAreWrongAreNamed) {
  EXPECT_EQ(GetParam().call(callers), GetParam().code);
  EXPECT_THAT(gradbus_last_error(), HasSubstr(GetParam().named));
  EXPECT_THAT(gradbus_last_error(), HasSubstr("| next: "));
  EXPECT_EQ(callers.other_session, nullptr);
  EXPECT_EQ(callers.other_tensor, nullptr);
  EXPECT_EQ(callers.other_handle, nullptr);
  EXPECT_EQ(callers.mapping, nullptr);
}

std::string name_of(const testing::TestParamInfo<Mistake>& mistake) { return mistake.param.name; }
INSTANTIATE_TEST_SUITE_P(Session, Arguments, testing::ValuesIn(kSessionMistakes), name_of);
INSTANTIATE_TEST_SUITE_P(Tensors, Arguments, testing::ValuesIn(kTensorMistakes), name_of);
INSTANTIATE_TEST_SUITE_P(Operations, Arguments, testing::ValuesIn(kOperationMistakes), name_of);

// Expect: times that wrap when nanoseconds are added are as good as others.
TEST_F(Prepared, LongTimesDoNotWrap) {
  for (const int64_t timeout : {INT64_MAX, INT64_MAX / 1000, INT64_MIN}) {
    ASSERT_EQ(gradbus_start(callers.tensor), GRADBUS_OK);
    EXPECT_EQ(gradbus_wait(callers.tensor, timeout), GRADBUS_OK) << timeout;
    EXPECT_EQ(gradbus_handle_wait(callers.handle, timeout), GRADBUS_OK) << timeout;
  }
}

// Expect: functions that return no code return nothing.
TEST_F(Prepared, OfFunctionsWithoutACode) {
  gradbus_handle_free(nullptr);
  gradbus_mapping_free(nullptr);
  gradbus_init_struct(nullptr, 100);
  gradbus_act_for_thread(-1);
  EXPECT_EQ(gradbus_tensor_data(nullptr), nullptr);
  EXPECT_EQ(gradbus_slot_data(callers.tensor, UINT32_MAX), nullptr);
  EXPECT_EQ(gradbus_slot_data(nullptr, 0), nullptr);
  EXPECT_EQ(gradbus_tensor_delay(nullptr), 0U);
  EXPECT_EQ(gradbus_tensor_slot(nullptr), 0U);
  EXPECT_EQ(gradbus_staleness(nullptr), -1);
  EXPECT_EQ(gradbus_optimizer_state_parts(nullptr), 0U);
  EXPECT_EQ(gradbus_tracing(nullptr), 0);
  EXPECT_EQ(gradbus_waited_ns(nullptr), 0U);
  EXPECT_EQ(gradbus_glob_matches(nullptr, "x"), 0);
  EXPECT_EQ(gradbus_glob_matches("x", nullptr), 0);
  gradbus_mapping* mapping = nullptr;
  ASSERT_EQ(gradbus_tensor_mapping(callers.tensor, &mapping), GRADBUS_OK);
  gradbus_mapping_free(mapping);
  gradbus_mapping_free(mapping);
}

}  // namespace
