// Orders of the coordinator: each reaches its job, and one that cannot be carried out ends the job.
#include "worker_agent/control/coordinator_orders.h"

#include <gmock/gmock.h>

#include "common/errors.h"
#include "data_plane/coordinator_plans.h"
#include "proto/numbers.h"
#include "tests/unit/worker_agent/control/fake_node.h"

namespace gradbus {
namespace {

using test::kJob;
using test::kStart;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class CoordinatorOrdersTest : public test::FakeNode {
 protected:
  CoordinatorOrdersTest() { welcome(); }
  static TensorSpec spec() {
    TensorSpec spec;
    spec.name = "w";
    spec.count = 64;
    return spec;
  }
  // All ranks have registered tensor "w" with request 5.
  static v1::CoordinatorMessage tensor_ready(uint64_t chunk_elements) {
    v1::CoordinatorMessage message;
    message.mutable_tensors_ready()->set_job_id(kJob);
    v1::ReadyTensor& tensor = *message.mutable_tensors_ready()->add_tensors();
    tensor.set_name("w");
    tensor.set_id(1);
    *tensor.mutable_spec() = spec_to(spec());
    tensor.set_chunk_elements(chunk_elements);
    tensor.set_algorithm(static_cast<uint32_t>(Algorithm::kRing));
    return message;
  }
  void start_with_requests(uint32_t ranks) {
    start_job(ranks);
    for (AttachedClient& client : clients_.all()) client.wanted["w"] = {5, spec()};
  }
  std::vector<v1::AgentMessage> take(const v1::CoordinatorMessage& message, Nanos now = kStart) {
    orders_.take(message, now);
    return coordinator_.take();
  }

  CoordinatorOrders orders_{false, jobs_, engine_, broken_, connection_, kSecond};
};

TEST_F(CoordinatorOrdersTest, PlaceTensorsAndAnswerTheRanks) {
  start_with_requests(2);
  EXPECT_THAT(take(tensor_ready(64)), IsEmpty());
  for (size_t rank : {0, 1}) {
    const auto packet = process(rank).read<RegisteredPacket>();
    ASSERT_TRUE(packet);
    EXPECT_EQ(packet->header.request, 5u);
    EXPECT_EQ(packet->code, 0u);
    EXPECT_EQ(packet->tensor, 1u);
    EXPECT_EQ(packet->chunk_elements, 64u);
  }
  for (const AttachedClient& client : clients_.all()) EXPECT_THAT(client.wanted, IsEmpty());
}

TEST_F(CoordinatorOrdersTest, EndAJobWhoseTensorCannotBePlaced) {
  start_with_requests(1);
  const auto sent = take(tensor_ready(0));
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_THAT(sent[0].job_failure().error().message(), HasSubstr("GB-D602"));
  EXPECT_THAT(get_text(process(0).read<NoticePacket>()->text), HasSubstr("GB-D602"));
  EXPECT_THAT(take(tensor_ready(64)), IsEmpty());  // it has failed
  EXPECT_TRUE(process(0).quiet());
}

TEST_F(CoordinatorOrdersTest, RefuseATensor) {
  start_with_requests(2);
  v1::CoordinatorMessage message;
  v1::TensorRefused& refused = *message.mutable_tensor_refused();
  refused.set_job_id(kJob);
  refused.set_name("w");
  refused.add_ranks(1);
  refused.mutable_error()->set_code(static_cast<uint32_t>(Code::kMismatch));
  take(message);
  EXPECT_TRUE(process(0).quiet());
  EXPECT_EQ(process(1).read<RegisteredPacket>()->code, static_cast<uint32_t>(Code::kMismatch));
}

TEST_F(CoordinatorOrdersTest, TellRanksOfStallsAndModes) {
  start_job(2);
  v1::CoordinatorMessage message;
  message.mutable_stall_notice()->set_job_id(kJob);
  message.mutable_stall_notice()->set_text("rank 1 is late");
  take(message);
  for (size_t rank : {0, 1}) {
    const auto notice = process(rank).read<NoticePacket>();
    ASSERT_TRUE(notice);
    EXPECT_EQ(notice->code, 0u);
    EXPECT_EQ(get_text(notice->text), "rank 1 is late");
  }
  message.mutable_mode_changed()->set_job_id(kJob);
  message.mutable_mode_changed()->set_group("emb*");
  message.mutable_mode_changed()->set_mode("ps:sync");
  take(message);
  const auto change = process(1).read<ModeChangePacket>();
  ASSERT_TRUE(change);
  EXPECT_EQ(get_text(change->group), "emb*");
  EXPECT_EQ(get_text(change->mode), "ps:sync");
}

TEST_F(CoordinatorOrdersTest, ReportWhoHasPosted) {
  start_with_requests(2);
  take(tensor_ready(64));
  v1::CoordinatorMessage message;
  message.mutable_progress_query()->set_job_id(kJob);
  message.mutable_progress_query()->set_tensor("w");
  message.mutable_progress_query()->set_round(1);
  const auto sent = take(message);
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_THAT(sent[0].progress_report().missing(), ElementsAre(0, 1));
}

TEST_F(CoordinatorOrdersTest, IgnoreJobsThatAreNotHere) {
  v1::CoordinatorMessage messages[6];
  messages[0].mutable_stall_notice()->set_job_id(kJob);
  messages[1].mutable_mode_changed()->set_job_id(kJob);
  messages[2].mutable_progress_query()->set_job_id(kJob);
  messages[3].mutable_trace_job()->set_job_id(kJob);
  messages[4].mutable_nccl_connect()->set_job_id(kJob);
  messages[5].mutable_tensors_retired()->set_job_id(kJob);
  for (const v1::CoordinatorMessage& message : messages) EXPECT_THAT(take(message), IsEmpty());
  EXPECT_THAT(take(tensor_ready(64)), IsEmpty());
}

// Expect: what the engine reports is taken in one go, a broken job first.
TEST_F(CoordinatorOrdersTest, TakeTheEnginesAnswers) {
  start_job(1);
  broken_.post({kJob, Status(Code::kCorrupt, "a wrong frame")});
  v1::CoordinatorMessage message;
  message.mutable_measure_path()->set_probe_id(9);
  message.mutable_measure_path()->set_address("nowhere");  // an engine answers this, too
  EXPECT_THAT(take(message), IsEmpty());
  for (int turn = 0; turn < 100; ++turn) engine_.do_work();
  orders_.take_answers(kStart);
  const auto sent = coordinator_.take();
  ASSERT_FALSE(sent.empty());
  EXPECT_EQ(sent[0].job_failure().error().message(), "a wrong frame");
  ASSERT_THAT(sent, SizeIs(2));
  EXPECT_EQ(sent[1].path_measured().probe_id(), 9u);
}

}  // namespace
}  // namespace gradbus
