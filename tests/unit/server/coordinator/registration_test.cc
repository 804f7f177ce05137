// Registration of tensors: agreement, disagreement, new versions, limits.
#include <gmock/gmock.h>

#include "server/coordinator/planning/planner.h"
#include "tests/unit/server/coordinator/cluster.h"

namespace gradbus {
namespace {

using test::Cluster;
using test::error_of;
using test::make_spec;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

class Registration : public testing::Test {
 protected:
  Registration() { job = cluster.start_job("train", 4); }

  void ask(uint32_t rank, const std::vector<v1::TensorSpec>& specs) {
    cluster.register_tensors(Cluster::agent_of(rank), job, rank, specs);
  }
  std::string last_error(uint64_t agent) { return error_of(cluster.last(agent)); }

  Cluster cluster;
  uint64_t job = 0;
};

TEST_F(Registration, ReadyWhenTheLastRankAsks) {
  const auto spec = make_spec("fc1.weight", 100'000);
  for (uint32_t rank = 0; rank < 3; ++rank) ask(rank, {spec});
  EXPECT_THAT(cluster.inbox, IsEmpty());
  ask(3, {spec});
  for (const uint64_t agent : {1, 2}) {
    ASSERT_THAT(cluster.inbox[agent], SizeIs(1));
    const auto& ready = cluster.inbox[agent][0].tensors_ready();
    EXPECT_EQ(ready.job_id(), job);
    EXPECT_THAT(ready.ranks(), IsEmpty());
    ASSERT_EQ(ready.tensors_size(), 1);
    EXPECT_EQ(ready.tensors(0).name(), "fc1.weight");
    EXPECT_EQ(ready.tensors(0).id(), 1u);
    EXPECT_EQ(ready.tensors(0).spec().count(), 100'000u);
    const TensorPlan plan = plan_tensor(spec, {.agents = 2, .world = 4}, {});
    EXPECT_EQ(ready.tensors(0).chunk_elements(), plan.chunk_elements);
    EXPECT_EQ(ready.tensors(0).algorithm(), static_cast<uint32_t>(plan.algorithm));
  }
}

TEST_F(Registration, OneMessageForAllThatBecameReadyInAnyOrder) {
  const auto a = make_spec("a", 1), b = make_spec("b", 2), c = make_spec("c", 3);
  ask(0, {a, b, c});
  ask(1, {c, a, b});
  ask(2, {b, a});
  ask(2, {c});
  ask(3, {c, b, a});
  ASSERT_THAT(cluster.inbox[1], SizeIs(1));
  std::set<uint32_t> ids;
  for (const auto& tensor : cluster.inbox[1][0].tensors_ready().tensors()) ids.insert(tensor.id());
  EXPECT_EQ(ids, (std::set<uint32_t>{1, 2, 3}));
}

TEST_F(Registration, DisagreementTellsAllOnceAndNamesBothValues) {
  ask(0, {make_spec("fc1.weight", 100)});
  ask(3, {make_spec("fc1.weight", 101)});
  for (const uint64_t agent : {1, 2}) {
    ASSERT_THAT(cluster.inbox[agent], SizeIs(1));
    EXPECT_EQ(cluster.inbox[agent][0].tensor_refused().name(), "fc1.weight");
    EXPECT_THAT(cluster.inbox[agent][0].tensor_refused().ranks(), ElementsAre(0, 3));
    EXPECT_THAT(last_error(agent), StartsWith("GB-O902"));
    EXPECT_THAT(last_error(agent), HasSubstr("tensor \"fc1.weight\": rank 0 registered f32[100] "
                                             "all_reduce sum, rank 3 f32[101] all_reduce sum"));
  }
}

TEST_F(Registration, EveryFieldIsCompared) {
  using K = CollectiveKind;
  using O = ReduceOp;
  const auto base = make_spec("t", 8, DType::kI32);
  const v1::TensorSpec others[] = {make_spec("t", 9, DType::kI32), make_spec("t", 8, DType::kF32),
                                   make_spec("t", 8, DType::kI32, K::kAllReduce, O::kAverage),
                                   make_spec("t", 8, DType::kI32, K::kAllGather)};
  for (const auto& other : others) {
    Cluster fresh;
    const uint64_t id = fresh.start_job("j", 2);
    fresh.register_tensors(1, id, 0, {base});
    fresh.register_tensors(2, id, 1, {other});
    EXPECT_THAT(error_of(fresh.inbox[1].at(0)), StartsWith("GB-O902")) << other.DebugString();
  }
  ask(0, {make_spec("b", 8, DType::kI32, K::kBroadcast, O::kNone, 0)});
  ask(1, {make_spec("b", 8, DType::kI32, K::kBroadcast, O::kNone, 1)});
  EXPECT_THAT(last_error(1), HasSubstr("i32[8] broadcast root 0, rank 1 i32[8] broadcast root 1"));
}

TEST_F(Registration, ShapesAreComparedAndShown) {
  const auto with_shape = [](uint64_t count, const char* shape) {
    auto spec = make_spec("t", count);
    spec.set_shape(shape);
    return spec;
  };
  ask(0, {with_shape(8, "[2,4]")});
  ask(1, {with_shape(8, "[4,2]")});
  EXPECT_THAT(last_error(1), StartsWith("GB-O902"));
  EXPECT_THAT(last_error(1), HasSubstr("rank 0 registered f32[2,4] all_reduce sum, rank 1 "
                                       "f32[4,2] all_reduce sum"));
  auto endless = with_shape(1, std::string(300, '1').c_str());
  endless.set_name("u");
  ask(2, {endless});
  EXPECT_THAT(last_error(Cluster::agent_of(2)), StartsWith("GB-O900"));
}

TEST_F(Registration, FieldsThatACollectiveDoesNotUseAreNotCompared) {
  for (uint32_t rank = 0; rank < 4; ++rank) {
    auto spec = make_spec("g", 8, DType::kF32, CollectiveKind::kAllGather);
    spec.set_root(rank);
    spec.set_op(rank % 3);
    ask(rank, {spec});
  }
  EXPECT_TRUE(cluster.last(1).has_tensors_ready());
}

TEST_F(Registration, LateRanksGetTheSameRefusalThenTheNameIsFree) {
  ask(0, {make_spec("t", 100)});
  ask(1, {make_spec("t", 101)});
  cluster.clear();
  ask(2, {make_spec("t", 100)});
  ASSERT_THAT(cluster.inbox[1], SizeIs(1));
  EXPECT_THAT(cluster.inbox[2], IsEmpty());
  EXPECT_THAT(last_error(1), StartsWith("GB-O902"));
  EXPECT_THAT(cluster.inbox[1][0].tensor_refused().ranks(), ElementsAre(2));
  ask(3, {make_spec("t", 101)});
  EXPECT_THAT(last_error(2), StartsWith("GB-O902"));
  cluster.clear();
  for (uint32_t rank = 0; rank < 4; ++rank) ask(rank, {make_spec("t", 102)});
  EXPECT_TRUE(cluster.inbox[1].at(0).has_tensors_ready());
}

TEST_F(Registration, AQuickRetryDoesNotMeetTheOldAttempt) {
  ask(0, {make_spec("t", 100)});
  ask(1, {make_spec("t", 101)});
  cluster.clear();
  ask(0, {make_spec("t", 102)});  // second attempt of 0 and 1
  ask(1, {make_spec("t", 102)});
  EXPECT_THAT(cluster.inbox, IsEmpty());
  ask(2, {make_spec("t", 100)});  // first attempt of 2 and 3
  ask(3, {make_spec("t", 100)});
  EXPECT_THAT(last_error(1), StartsWith("GB-O902"));
  cluster.clear();
  ask(2, {make_spec("t", 102)});
  ask(3, {make_spec("t", 102)});
  EXPECT_EQ(cluster.inbox[1].at(0).tensors_ready().tensors(0).spec().count(), 102u);
}

TEST_F(Registration, FailedAttemptsOfOneNameAreBounded) {
  for (int i = 0; i < 1000; ++i) {
    ask(0, {make_spec("t", 100)});
    ask(1, {make_spec("t", 101)});
  }
  cluster.clear();
  for (int i = 0; i < 20; ++i) ask(2, {make_spec("t", 100)});
  size_t refusals = 0;
  for (const auto& message : cluster.inbox[1]) refusals += message.has_tensor_refused();
  EXPECT_LE(refusals, 8u);
  EXPECT_GE(refusals, 1u);
}

TEST_F(Registration, AskingTwiceWaitsOnceAndDisagreeingWithOneselfIsADisagreement) {
  ask(0, {make_spec("t", 100)});
  ask(0, {make_spec("t", 100)});
  EXPECT_THAT(cluster.inbox, IsEmpty());
  ask(0, {make_spec("t", 101)});
  EXPECT_THAT(last_error(1), StartsWith("GB-O902"));
}

TEST_F(Registration, TheSameSpecAgainIsAnsweredToTheAskerAlone) {
  const uint32_t id = cluster.make_ready(job, 4, make_spec("t", 100));
  ask(3, {make_spec("t", 100)});
  EXPECT_THAT(cluster.inbox[1], IsEmpty());
  const auto& ready = cluster.inbox[2].at(0).tensors_ready();
  EXPECT_EQ(ready.tensors(0).id(), id);
  EXPECT_THAT(ready.ranks(),
              ElementsAre(3));  // rank 2, on the same agent, gets an answer of its own
}

TEST_F(Registration, AnotherSpecIsANewVersionThatNeedsEveryRank) {
  const uint32_t id = cluster.make_ready(job, 4, make_spec("t", 100));
  for (uint32_t rank = 0; rank < 3; ++rank) ask(rank, {make_spec("t", 200)});
  EXPECT_THAT(cluster.inbox, IsEmpty());
  ask(3, {make_spec("t", 200)});
  const auto& ready = cluster.inbox[2].at(0).tensors_ready().tensors(0);
  EXPECT_GT(ready.id(), id);
  EXPECT_EQ(ready.spec().count(), 200u);
}

TEST_F(Registration, SpecsThatAreNotAllowed) {
  using K = CollectiveKind;
  const auto with = [](auto change) {
    v1::TensorSpec spec = make_spec("t", 8);
    change(spec);
    return spec;
  };
  struct Row {
    v1::TensorSpec spec;
    const char* id;
  };
  const Row rows[] = {
      {make_spec("", 8), "GB-O900"},
      {make_spec(std::string(256, 'n'), 8), "GB-O900"},
      {with([](auto& spec) { spec.set_op(0); }), "GB-O900"},
      {make_spec("t", 8, DType::kF32, K::kBroadcast, ReduceOp::kNone, 4), "GB-O900"},
      {with([](auto& spec) { spec.set_dtype(0); }), "GB-D602"},
      {with([](auto& spec) { spec.set_dtype(kDTypeLast + 1); }), "GB-D602"},
      {with([](auto& spec) { spec.set_op(9); }), "GB-D602"},
      {with([](auto& spec) { spec.set_collective(0); }), "GB-D602"},
      {with([](auto& spec) { spec.set_collective(9); }), "GB-D602"},
      {make_spec("t", (1ull << 38) + 1), "GB-O904"},
      {make_spec("t", ~0ull, DType::kF64), "GB-O904"},
  };
  for (const Row& row : rows) {
    cluster.clear();
    ask(0, {row.spec});
    ASSERT_THAT(cluster.inbox[1], SizeIs(1));
    EXPECT_THAT(cluster.inbox[2], IsEmpty());
    EXPECT_THAT(last_error(1), StartsWith(row.id)) << row.spec.DebugString().substr(0, 200);
  }
  cluster.clear();
  ask(0, {make_spec("t", 1ull << 38), make_spec(std::string(255, 'n'), 0)});
  EXPECT_THAT(cluster.inbox, IsEmpty());
}

TEST_F(Registration, TooManyInOneMessageEndsTheJobNotTheCoordinator) {
  std::vector<v1::TensorSpec> specs(kTensorsPerMessageMax + 1, make_spec("t", 1));
  ask(0, specs);
  bool failed = false;
  for (const auto& message : cluster.inbox[2]) failed = failed || message.has_job_failed();
  EXPECT_TRUE(failed);
}

TEST_F(Registration, AFullMessageIsAnsweredInOneThatFits) {
  std::vector<v1::TensorSpec> specs;
  for (int i = 0; i < kTensorsPerMessageMax; ++i) {
    std::string name = std::to_string(i);
    name.resize(kTensorNameBytesMax, 'x');
    specs.push_back(make_spec(name, 1ull << 37));
    specs.back().set_shape(std::string(kShapeBytesMax, '1'));
  }
  for (uint32_t rank = 0; rank < 4; ++rank) ask(rank, specs);
  ASSERT_THAT(cluster.inbox[1], SizeIs(1));
  EXPECT_EQ(cluster.inbox[1][0].tensors_ready().tensors_size(), kTensorsPerMessageMax);
  EXPECT_LT(cluster.inbox[1][0].ByteSizeLong(), size_t{kControlMessageBytesMax});
}

TEST_F(Registration, NoTensorTakesMoreOfAMessageThanIsSetAside) {
  v1::TensorsReady message;
  v1::ReadyTensor& ready = *message.add_tensors();
  v1::TensorSpec& spec = *ready.mutable_spec();
  for (std::string* name : {ready.mutable_name(), spec.mutable_name()})
    name->assign(kTensorNameBytesMax, 'x');
  spec.set_compression(std::string(kCompressionBytesMax, 'x'));
  spec.set_mode(std::string(kModeBytesMax, 'x'));
  spec.set_shape(std::string(kShapeBytesMax, 'x'));
  spec.set_prescale(0.1);
  spec.set_postscale(0.1);
  for (const auto set : {&v1::TensorSpec::set_dtype, &v1::TensorSpec::set_op,
                         &v1::TensorSpec::set_collective, &v1::TensorSpec::set_root})
    (spec.*set)(UINT32_MAX);
  for (const auto set : {&v1::TensorSpec::set_count, &v1::TensorSpec::set_row_elements,
                         &v1::TensorSpec::set_columns})
    (spec.*set)(UINT64_MAX);
  for (const auto set :
       {&v1::ReadyTensor::set_id, &v1::ReadyTensor::set_algorithm, &v1::ReadyTensor::set_placement})
    (ready.*set)(UINT32_MAX);
  ready.set_chunk_elements(UINT64_MAX);
  ready.set_partition_elements(UINT64_MAX);
  ready.set_communicator("allgather");
  ready.set_nccl(true);
  ready.mutable_moved_from()->set_id(UINT32_MAX);
  ready.mutable_moved_from()->set_chunk_elements(UINT64_MAX);
  ready.mutable_moved_from()->set_placement(UINT32_MAX);
  EXPECT_LE(message.ByteSizeLong(), size_t{kReadyTensorBytesMax});
}

TEST_F(Registration, ForeignRanksAndUnknownJobsAreAnsweredWithD602) {
  cluster.register_tensors(2, job, 0, {make_spec("t", 1)});  // rank 0 is on agent 1
  cluster.register_tensors(2, 12345, 1, {make_spec("t", 1)});
  ASSERT_THAT(cluster.inbox[2], SizeIs(2));
  EXPECT_THAT(error_of(cluster.inbox[2][0]), StartsWith("GB-D602"));
  EXPECT_THAT(error_of(cluster.inbox[2][1]), HasSubstr("12345"));
  EXPECT_EQ(cluster.coordinator.warnings(), 2u);
  EXPECT_THAT(cluster.inbox[1], IsEmpty());
}

}  // namespace
}  // namespace gradbus
