// Requests to register tensors: batches, refusals, and what waits for a coordinator's return.
#include "worker_agent/control/tensor_requests.h"

#include <gmock/gmock.h>

#include "proto/control.h"
#include "tests/unit/worker_agent/control/fake_node.h"

namespace gradbus {
namespace {

using test::kStart;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

RegisterPacket wanted(const std::string& name, uint32_t request = 1, uint64_t count = 8) {
  auto packet = make_packet<RegisterPacket>(request);
  set_text(packet.name, name);
  packet.count = count;
  packet.dtype = static_cast<uint8_t>(DType::kF32);
  packet.op = static_cast<uint8_t>(ReduceOp::kSum);
  packet.collective = static_cast<uint8_t>(CollectiveKind::kAllReduce);
  return packet;
}

class TensorRequestsTest : public test::FakeNode {
 protected:
  TensorRequestsTest() { welcome(); }
  void remove(const AttachedClient& client, uint32_t tensor, uint32_t viewed = 0) {
    auto packet = make_packet<UnregisterPacket>();
    packet.tensor = tensor;
    packet.viewed = viewed;
    requests_.remove(client, packet);
  }
  std::string refusal(size_t index) {
    const auto packet = process(index).read<RegisteredPacket>();
    return packet && packet->code != 0 ? get_text(packet->text) : "no refusal";
  }

  TensorRequests requests_{clients_, connection_, devices_};
};

TEST_F(TensorRequestsTest, SendsABatchForEachRankAndTurn) {
  AttachedClient& first = attach_running(0);
  AttachedClient& second = attach_running(1);
  requests_.add(first, wanted("a"), true, kStart);
  requests_.add(second, wanted("a"), true, kStart);
  requests_.add(first, wanted("b"), true, kStart);
  EXPECT_THAT(coordinator_.sent, IsEmpty());
  requests_.flush();
  const auto sent = coordinator_.take();
  ASSERT_THAT(sent, SizeIs(2));
  EXPECT_EQ(sent[0].register_tensors().rank(), 0u);
  ASSERT_EQ(sent[0].register_tensors().tensors_size(), 2);
  EXPECT_EQ(sent[0].register_tensors().tensors(1).name(), "b");
  EXPECT_EQ(sent[1].register_tensors().rank(), 1u);
  EXPECT_EQ(sent[1].register_tensors().job_id(), test::kJob);
  requests_.flush();
  EXPECT_THAT(coordinator_.sent, IsEmpty());
}

// Expect: a name that is registered again in the same turn is another tensor.
TEST_F(TensorRequestsTest, UnregistersFirst) {
  AttachedClient& client = attach_running(0);
  requests_.add(client, wanted("a"), true, kStart);
  remove(client, 5);
  remove(client, 6, 1);
  requests_.flush();
  ASSERT_THAT(coordinator_.sent, SizeIs(2));
  EXPECT_EQ(coordinator_.sent[0].unregister_tensors().tensors(0), 5u);
  EXPECT_EQ(coordinator_.sent[0].unregister_tensors().viewed(0), 6u);
  EXPECT_TRUE(coordinator_.sent[1].has_register_tensors());
}

TEST_F(TensorRequestsTest, SplitsLongLists) {
  AttachedClient& client = attach_running(0);
  for (int i = 0; i <= kTensorsPerMessageMax; ++i)
    requests_.add(client, wanted(std::to_string(i)), true, kStart);
  ASSERT_THAT(coordinator_.sent, SizeIs(1));
  EXPECT_EQ(coordinator_.sent[0].register_tensors().tensors_size(), kTensorsPerMessageMax);
  requests_.flush();
  ASSERT_THAT(coordinator_.sent, SizeIs(2));
  EXPECT_EQ(coordinator_.sent[1].register_tensors().tensors_size(), 1);
}

TEST_F(TensorRequestsTest, RefusesAtOnce) {
  AttachedClient& client = attach_running(0);
  auto unknown = wanted("a");
  unknown.collective = 99;
  requests_.add(client, unknown, true, kStart);
  EXPECT_THAT(refusal(0), HasSubstr("collective number is unknown"));
  auto untyped = wanted("a");
  untyped.dtype = 99;
  requests_.add(client, untyped, true, kStart);
  EXPECT_THAT(refusal(0), HasSubstr("GB-O9"));
  requests_.add(client, wanted("a"), false, kStart);  // its job has ended
  EXPECT_THAT(refusal(0), HasSubstr("GB-C501"));
  EXPECT_THAT(client.wanted, IsEmpty());
  requests_.flush();
  EXPECT_THAT(coordinator_.sent, IsEmpty());
}

// Expect: the first request of two for one name gets an answer, and the second one waits.
TEST_F(TensorRequestsTest, RefusesTheFirstOfTwoRequests) {
  AttachedClient& client = attach_running(0);
  requests_.add(client, wanted("a", 1), true, kStart);
  requests_.add(client, wanted("a", 2, 16), true, kStart);
  const auto packet = process(0).read<RegisteredPacket>();
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->header.request, 1u);
  EXPECT_THAT(get_text(packet->text), HasSubstr("GB-O902"));
  EXPECT_EQ(client.wanted.at("a").request, 2u);
}

TEST_F(TensorRequestsTest, WaitsForTheCoordinatorToReturn) {
  AttachedClient& client = attach_running(0);
  requests_.add(client, wanted("a"), true, kStart);
  connection_.ended("closed", kStart);
  requests_.clear();
  requests_.add(client, wanted("b"), true, kStart + 59 * kSecond);
  remove(client, 5);  // is told when the job is announced
  requests_.flush();
  EXPECT_THAT(coordinator_.sent, IsEmpty());
  welcome(2);
  requests_.repeat(test::kJob + 1);
  EXPECT_THAT(coordinator_.sent, IsEmpty());
  requests_.repeat(test::kJob);
  ASSERT_THAT(coordinator_.sent, SizeIs(1));
  EXPECT_EQ(coordinator_.sent[0].register_tensors().tensors_size(), 2);
}

TEST_F(TensorRequestsTest, GivesUpAfterAMinute) {
  AttachedClient& client = attach_running(0);
  connection_.ended("closed", kStart);
  requests_.add(client, wanted("a"), true, kStart);
  EXPECT_TRUE(process(0).quiet());
  requests_.refuse_all(connection_.given_up());
  EXPECT_THAT(refusal(0), HasSubstr("gone for more than 60 s"));
  EXPECT_THAT(client.wanted, IsEmpty());
  requests_.add(client, wanted("b"), true, kStart + 60 * kSecond);
  EXPECT_THAT(refusal(0), HasSubstr("tensor \"b\" cannot be registered"));
}

}  // namespace
}  // namespace gradbus
