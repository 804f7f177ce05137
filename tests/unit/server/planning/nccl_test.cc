// Tensors that may go by NCCL: what nodes say, and what all of them are told.
#include <gmock/gmock.h>

#include "tests/unit/server/coordinator/cluster.h"

namespace gradbus {
namespace {

using test::Cluster;
using test::make_spec;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class NcclJobs : public testing::Test {
 protected:
  static CoordinatorOptions options() {
    CoordinatorOptions made;
    made.plan.nccl = true;
    return made;
  }
  void SetUp() override { job = cluster.start_job("train", 2); }

  // The tensor's id; it is registered by all, and may go by NCCL or not.
  uint32_t register_one(const v1::TensorSpec& spec, bool may_go) {
    cluster.clear();
    cluster.register_tensors(1, job, 0, {spec});
    cluster.register_tensors(2, job, 1, {spec});
    const v1::ReadyTensor ready = cluster.last(1).tensors_ready().tensors(0);
    EXPECT_EQ(ready.nccl(), may_go);
    EXPECT_NE(ready.algorithm(), 0u);  // for those that do not
    cluster.clear();
    return ready.id();
  }
  void report(uint64_t agent, uint32_t tensor, const std::string& problem = "",
              const std::string& id = "") {
    v1::AgentMessage message;
    message.mutable_nccl_report()->set_job_id(job);
    message.mutable_nccl_report()->set_tensor(tensor);
    message.mutable_nccl_report()->set_id(id);
    if (!problem.empty()) {
      message.mutable_nccl_report()->mutable_error()->set_code(uint32_t(Code::kUnavailable));
      message.mutable_nccl_report()->mutable_error()->set_message(problem);
    }
    cluster.send(agent, message);
  }
  // What both agents have just been told, which is the same; then it is forgotten.
  v1::NcclSettled settled() {
    EXPECT_THAT(cluster.inbox[1], SizeIs(1));
    EXPECT_THAT(cluster.inbox[2], SizeIs(1));
    const v1::NcclSettled told = cluster.last(1).nccl_settled();
    EXPECT_EQ(told.SerializeAsString(), cluster.last(2).nccl_settled().SerializeAsString());
    cluster.clear();
    return told;
  }
  // Both have `first`, and are told to connect.
  void connect_with(uint32_t first) {
    report(2, first);
    EXPECT_THAT(cluster.inbox[1], IsEmpty());
    report(1, first, "", "name of it");
    for (const uint64_t agent : {1, 2})
      ASSERT_EQ(cluster.last(agent).nccl_connect().id(), "name of it");
    cluster.clear();
  }

  Cluster cluster{options()};
  uint64_t job = 0;
};

// Expect: one communicator, made when the first tensor needs it; what comes meanwhile waits for it.
TEST_F(NcclJobs, AllNodesGoByNcclWhenAllCan) {
  const uint32_t a = register_one(make_spec("a", 100), true);
  const uint32_t b = register_one(make_spec("b", 100), true);
  connect_with(a);
  report(1, b, "", "name of it");
  report(2, b);
  report(1, 0);
  EXPECT_THAT(cluster.inbox[1], IsEmpty());
  report(2, 0);
  v1::NcclSettled told = settled();
  EXPECT_THAT(told.tensors(), ElementsAre(a, b));
  EXPECT_EQ(told.error().code(), 0u);
  const uint32_t c = register_one(make_spec("c", 100), true);
  report(1, c);
  report(2, c);
  told = settled();
  EXPECT_THAT(told.tensors(), ElementsAre(c));
  EXPECT_EQ(told.error().code(), 0u);
  EXPECT_EQ(cluster.status("train").jobs(0).nccl_tensors(), 3u);
}

// Expect: that tensor alone takes the host, with the reason; others are not concerned.
TEST_F(NcclJobs, ATensorThatOneNodeHasElsewhereTakesTheHost) {
  const uint32_t a = register_one(make_spec("a", 100), true);
  report(2, a, "GB-D628 NOT_ON_GPU: it is not");
  EXPECT_THAT(cluster.inbox[1], IsEmpty());
  report(1, a, "GB-D628 NOT_ON_GPU: nor here", "no name");
  const v1::NcclSettled told = settled();
  EXPECT_THAT(told.tensors(), ElementsAre(a));
  EXPECT_EQ(told.error().message(), "GB-D628 NOT_ON_GPU: it is not");
  connect_with(register_one(make_spec("b", 100), true));
}

// Expect: the first problem is told at once, and is the answer to all that come later.
TEST_F(NcclJobs, WithoutACommunicatorAllTakeTheHost) {
  const uint32_t a = register_one(make_spec("a", 100), true);
  connect_with(a);
  report(2, 0, "GB-D627 NCCL_TIMEOUT: no answer");
  EXPECT_THAT(settled().error().message(), HasSubstr("no answer"));
  report(1, 0);
  EXPECT_THAT(cluster.inbox[1], IsEmpty());
  const uint32_t b = register_one(make_spec("b", 100), true);
  report(1, b);
  report(2, b);
  EXPECT_THAT(settled().error().message(), HasSubstr("no answer"));
  const v1::JobStatus shown = cluster.status("train").jobs(0);
  EXPECT_EQ(shown.nccl_tensors(), 0u);
  EXPECT_THAT(shown.no_nccl(), HasSubstr("no answer"));
}

TEST_F(NcclJobs, IntegersThatNcclHasGoByIt) {
  for (const DType dtype : {DType::kI32, DType::kU32, DType::kI64, DType::kU64})
    register_one(make_spec(std::string(dtype_name(dtype)), 100, dtype), true);
}

TEST_F(NcclJobs, OtherTensorsAreNotAskedAbout) {
  register_one(make_spec("largest", 100, DType::kF32, CollectiveKind::kAllReduce, ReduceOp::kMax),
               false);
  for (const DType dtype : {DType::kU8, DType::kI16, DType::kU16})
    register_one(make_spec(std::string(dtype_name(dtype)), 100, dtype), false);
  register_one(make_spec("none", 0), false);
  register_one(make_spec("moved", 100, DType::kF32, CollectiveKind::kAllGather), false);
  v1::TensorSpec compressed = make_spec("int8", 1 << 20);
  compressed.set_compression("int8");
  register_one(compressed, false);
  Cluster without;
  const uint64_t other = without.start_job("other", 2);
  for (const uint32_t rank : {0, 1})
    without.register_tensors(1 + rank, other, rank, {make_spec("a", 100)});
  EXPECT_FALSE(without.last(1).tensors_ready().tensors(0).nccl());
}

// Expect: nothing happens but a warning.
TEST_F(NcclJobs, AnswersToNothingTakeNoEffect) {
  const uint32_t a = register_one(make_spec("a", 100), true);
  report(1, a + 1);
  report(1, 0);
  report(1, a, "", "name of it");
  report(1, a, "", "name of it");
  report(9, a);
  EXPECT_THAT(cluster.inbox[1], IsEmpty());
  EXPECT_THAT(cluster.inbox[2], IsEmpty());
}

}  // namespace
}  // namespace gradbus
