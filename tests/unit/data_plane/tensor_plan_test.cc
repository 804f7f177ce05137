// Plans of the coordinator as agents and shards read them. A coordinator of another version may
// send anything.
#include "data_plane/tensor_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "proto/tensor_ids.h"

namespace gradbus {
namespace {

using testing::HasSubstr;

// An all-reduce of 1000 f32 between two agents.
v1::ReadyTensor ready() {
  v1::ReadyTensor tensor;
  tensor.set_name("t");
  tensor.set_id(3);
  tensor.set_chunk_elements(64);
  tensor.set_algorithm(static_cast<uint32_t>(Algorithm::kRing));
  v1::TensorSpec& spec = *tensor.mutable_spec();
  spec.set_name("t");
  spec.set_count(1000);
  spec.set_dtype(static_cast<uint32_t>(DType::kF32));
  spec.set_op(static_cast<uint32_t>(ReduceOp::kSum));
  spec.set_collective(static_cast<uint32_t>(CollectiveKind::kAllReduce));
  return tensor;
}

v1::ReadyTensor compressed() {
  v1::ReadyTensor tensor = ready();
  tensor.mutable_spec()->set_compression("int8");
  tensor.set_communicator("allgather");
  tensor.set_partition_elements(256);
  return tensor;
}

v1::ReadyTensor on_shards(const std::string& mode = "ps:async") {
  v1::ReadyTensor tensor = ready();
  tensor.mutable_spec()->set_mode(mode);
  tensor.set_algorithm(static_cast<uint32_t>(Algorithm::kShards));
  return tensor;
}

// Two agents with two ranks each. Placement 0: three shards; placement 1: two of them.
Result<TensorPlan> read(const v1::ReadyTensor& tensor, uint32_t agents = 2) {
  const std::vector<uint16_t> members{0, 2};
  const std::vector<ShardSet> sets{
      {3}, {2, nullptr, std::make_shared<const std::vector<uint16_t>>(members)}};
  return tensor_plan_from(tensor, {agents, 4, sets});
}

TEST(TensorPlan, OfADenseTensor) {
  const TensorPlan plan = read(ready()).take();
  ASSERT_TRUE(std::holds_alternative<DensePlan>(plan.exchange));
  EXPECT_EQ(plan.algorithm(), Algorithm::kRing);
  EXPECT_EQ(plan.id, 3u);
  EXPECT_EQ(plan.chunk_elements, 64u);
  EXPECT_EQ(plan.mode.kind, SyncMode::Kind::kSync);
  EXPECT_TRUE(plan.compression().spec.none());
  EXPECT_EQ(plan.ps(), nullptr);
}

TEST(TensorPlan, OfACompressedTensor) {
  const TensorPlan plan = read(compressed()).take();
  ASSERT_TRUE(std::holds_alternative<CompressedPlan>(plan.exchange));
  EXPECT_EQ(plan.algorithm(), Algorithm::kRing);
  EXPECT_EQ(plan.compression().communicator, Communicator::kAllGather);
  EXPECT_EQ(plan.compression().partition_elements, 256u);
}

TEST(TensorPlan, OfATensorOnShards) {
  v1::ReadyTensor tensor = on_shards();
  tensor.set_placement(1);
  tensor.mutable_moved_from()->set_id(2);
  tensor.mutable_moved_from()->set_chunk_elements(32);
  const TensorPlan plan = read(tensor).take();
  ASSERT_NE(plan.ps(), nullptr);
  EXPECT_EQ(plan.algorithm(), Algorithm::kShards);
  EXPECT_TRUE(plan.mode.holds_parameters());
  EXPECT_EQ(plan.ps()->shards.shards, 2u);
  EXPECT_EQ(plan.ps()->placement, 1u);
  EXPECT_EQ(plan.ps()->replicas, 2u);  // of parameters, where the mode does not say
  EXPECT_EQ(plan.ps()->moved_from->id, 2u);
  EXPECT_EQ(plan.ps()->moved_from->chunk_elements, 32u);
  EXPECT_TRUE(plan.compression().spec.none());
  EXPECT_EQ(read(on_shards("ps:sync")).value().ps()->replicas, 1u);
}

TEST(TensorPlan, OfACompressedTensorOnShards) {
  v1::ReadyTensor tensor = on_shards("ps:sync");
  tensor.mutable_spec()->set_compression("int8");
  tensor.set_communicator("ps");
  tensor.set_partition_elements(256);
  const TensorPlan plan = read(tensor, 1).take();
  ASSERT_NE(plan.ps(), nullptr);
  EXPECT_EQ(plan.compression().communicator, Communicator::kPs);
}

struct Wrong {
  const char* what;
  v1::ReadyTensor from;
  std::function<void(v1::ReadyTensor&)> make;
  const char* says;
};

TEST(TensorPlan, IsRefusedWithTheField) {
  const std::vector<Wrong> all{
      {"no name", ready(), [](auto& t) { t.mutable_spec()->clear_name(); }, "is not valid"},
      {"mode", ready(), [](auto& t) { t.mutable_spec()->set_mode("pc:async"); }, "is not valid"},
      {"no chunk", ready(), [](auto& t) { t.set_chunk_elements(0); }, "chunks of 0 elements"},
      {"chunk", ready(), [](auto& t) { t.set_chunk_elements(1 << 30); }, "fit a frame"},
      {"id", ready(), [](auto& t) { t.set_id(kTensorIdsMax); }, "has number 16777216"},
      {"algorithm", ready(), [](auto& t) { t.set_algorithm(99); }, "names algorithm 99"},
      {"direct", ready(),
       [](auto& t) { t.set_algorithm(static_cast<uint32_t>(Algorithm::kDirect)); },
       "which does not fit this all_reduce"},
      {"doubling", ready(),
       [](auto& t) { t.set_algorithm(static_cast<uint32_t>(Algorithm::kRecursiveDoubling)); },
       "names algorithm"},
      {"shards without a mode", ready(),
       [](auto& t) { t.set_algorithm(static_cast<uint32_t>(Algorithm::kShards)); },
       "names algorithm"},
      {"mode without shards", on_shards(),
       [](auto& t) { t.set_algorithm(static_cast<uint32_t>(Algorithm::kRing)); },
       "has mode \"ps:async\""},
      {"placement", on_shards(), [](auto& t) { t.set_placement(2); }, "has placement 2 of 2"},
      {"replaced", on_shards(),
       [](auto& t) {
         t.mutable_moved_from()->set_id(3);
         t.mutable_moved_from()->set_chunk_elements(1);
       },
       "replaces a tensor that does not match it"},
      {"replaced placement", on_shards(),
       [](auto& t) {
         t.mutable_moved_from()->set_id(2);
         t.mutable_moved_from()->set_chunk_elements(1);
         t.mutable_moved_from()->set_placement(7);
       },
       "has placement 7 of 2"},
      {"whole", on_shards("ps:async,optimizer=lamb"),
       [](auto& t) {
         t.mutable_spec()->set_compression("int8");
         t.set_communicator("ps");
         t.set_partition_elements(256);
       },
       "does not support"},
      {"f64", compressed(),
       [](auto& t) { t.mutable_spec()->set_dtype(static_cast<uint32_t>(DType::kF64)); },
       "cannot be compressed"},
      {"communicator", compressed(), [](auto& t) { t.set_communicator("post"); },
       "names communicator \"post\""},
      {"all-reduce", compressed(), [](auto& t) { t.set_communicator("allreduce"); },
       "does not fit int8"},
      {"partition", compressed(), [](auto& t) { t.set_partition_elements(100); },
       "partitions of 100 elements"},
  };
  for (const Wrong& one : all) {
    v1::ReadyTensor tensor = one.from;
    ASSERT_TRUE(read(tensor).ok()) << one.what;
    one.make(tensor);
    const Status status = read(tensor).status();
    EXPECT_THAT(status.message(), HasSubstr("GB-D602")) << one.what;
    EXPECT_THAT(status.message(), HasSubstr(one.says)) << one.what;
  }
}

TEST(TensorPlan, NothingIsCompressedOnOneNode) {
  EXPECT_THAT(read(compressed(), 1).status().message(), HasSubstr("names communicator"));
}

}  // namespace
}  // namespace gradbus
