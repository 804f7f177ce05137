// The tensors of a rank: one request for a name, what the agent's answers make of it, and its end.
#include "client_lib/src/rank_tensors.h"

#include <gmock/gmock.h>

#include "tests/unit/client_lib/alone.h"
#include "tests/unit/client_lib/fake_agent.h"

namespace gradbus {
namespace {

using test::as_packet;
using test::FakeAgent;
using test::vector_of;
using testing::HasSubstr;

// A rank of two on this node, whose agent is the test.
class RankTensorsTest : public testing::Test {
 protected:
  RankTensorsTest() {
    joined_.world_size = joined_.local_size = 2;
    joined_.agents = joined_.cores = 1;
    socket_.open(agent_.connection());
    tensors_.arena().add(Segment::create("arena", 1 << 20).take());
  }
  // The number of the request that the agent finds; 0: there is none.
  uint32_t requested() {
    const auto packet = agent_.read<RegisterPacket>();
    return packet ? packet->header.request : 0;
  }
  Status answer(uint32_t request, uint32_t tensor, uint64_t chunk_elements = 64) {
    auto packet = make_packet<RegisteredPacket>(request);
    packet.tensor = tensor;
    packet.chunks = 1;
    packet.chunk_elements = chunk_elements;
    packet.data_offset = 4096;
    packet.data_stride = 4096;
    Packet whole = as_packet(packet);
    return tensors_.take_registered(whole);
  }
  std::shared_ptr<Registration> request(const std::string& name, uint64_t count = 64) {
    auto registration = tensors_.request(vector_of(name, count));
    EXPECT_TRUE(registration.ok());
    return registration.take();
  }
  std::optional<uint32_t> unregistered() {
    const auto packet = agent_.read<UnregisterPacket>();
    if (!packet) return {};
    return packet->tensor;
  }

  FakeAgent agent_;
  std::unique_ptr<Session> session_ = test::session_alone();
  SessionRegistry& registry_ = SessionRegistry::of_this_process();
  JoinedPacket joined_;
  AgentSocket socket_{kSecond};
  RankChannel channel_;
  RankTensors tensors_{*session_, socket_, channel_, registry_, joined_};
};

TEST_F(RankTensorsTest, AreRequestedOnceForAName) {
  const auto first = request("w");
  EXPECT_EQ(request("w"), first);
  EXPECT_EQ(tensors_.unsettled(), 1u);
  EXPECT_EQ(registry_.unsettled.load(), 1u);
  const uint32_t number = requested();
  EXPECT_NE(number, 0u);
  EXPECT_EQ(requested(), 0u);
  EXPECT_FALSE(first->settled());
  ASSERT_TRUE(answer(number, 3).ok());
  EXPECT_TRUE(first->settled());
  EXPECT_EQ(first->tensor->id(), 3u);
  EXPECT_EQ(tensors_.unsettled(), 0u);
  EXPECT_EQ(registry_.unsettled.load(), 0u);
  EXPECT_EQ(tensors_.memory_of(*first->tensor)->bytes(), size_t{1} << 20);
}

TEST_F(RankTensorsTest, AreRefusedAndMayBeRequestedAgain) {
  const auto first = request("w");
  auto packet = make_packet<RegisteredPacket>(requested());
  packet.code = static_cast<uint32_t>(Code::kMismatch);
  set_text(packet.text, "GB-O900 no");
  Packet whole = as_packet(packet);
  ASSERT_TRUE(tensors_.take_registered(whole).ok());
  EXPECT_EQ(first->failure.message(), "GB-O900 no");
  EXPECT_NE(request("w"), first);
  EXPECT_NE(requested(), 0u);
}

TEST_F(RankTensorsTest, RefusePlacesThatNoAgentGives) {
  request("w");
  EXPECT_EQ(answer(requested(), 1, 0).code(), Code::kCorrupt);  // no elements in a chunk
  EXPECT_TRUE(answer(77, 1).ok());                              // nobody has asked
}

// Expect: the agent is told once, and the name can be registered again at once.
TEST_F(RankTensorsTest, EndWhenNoRoundIsInFlight) {
  const auto registration = request("w");
  ASSERT_TRUE(answer(requested(), 3).ok());
  Tensor* const tensor = registration->tensor;
  ASSERT_TRUE(tensor->start().ok());
  EXPECT_THAT(tensors_.unregister({&tensor, 1}).message(), HasSubstr("GB-O905"));
  EXPECT_FALSE(unregistered());
  tensor->local_reduction().post(1, 1);  // the other rank
  EXPECT_TRUE(tensor->attempt());
  ASSERT_TRUE(tensor->take_result().ok());
  ASSERT_TRUE(tensors_.unregister({&tensor, 1}).ok());
  EXPECT_EQ(unregistered(), 3u);
  EXPECT_NE(request("w"), registration);
}

TEST_F(RankTensorsTest, StayWhileViewsExist) {
  const auto registration = request("w");
  ASSERT_TRUE(answer(requested(), 3).ok());
  Tensor* const tensor = registration->tensor;
  ASSERT_TRUE(tensors_.unregister_but_views({&tensor, 1}).ok());
  EXPECT_EQ(agent_.read<UnregisterPacket>()->viewed, 1u);
  EXPECT_NE(tensors_.memory_of(*tensor), nullptr);
  ASSERT_TRUE(tensors_.unregister({&tensor, 1}).ok());
  EXPECT_EQ(agent_.read<UnregisterPacket>()->viewed, 0u);
}

// Expect: an ad-hoc operation's tensor ends when its name gets other arguments and nobody uses it.
TEST_F(RankTensorsTest, AreReplacedUnderTheirNames) {
  uint64_t turn = 9;
  auto first = tensors_.request_turn(vector_of("loss", 64), turn);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(turn, 0u);
  ASSERT_TRUE(answer(requested(), 1).ok());
  EXPECT_THAT(tensors_.unregister("loss").status().message(), HasSubstr("GB-O905"));
  first.value()->turn.store(1);  // the operation has ended
  ASSERT_TRUE(tensors_.request_turn(vector_of("loss", 32), turn).ok());
  EXPECT_EQ(turn, 0u);
  const uint32_t second = requested();
  EXPECT_FALSE(unregistered());
  ASSERT_TRUE(answer(second, 2).ok());
  EXPECT_EQ(unregistered(), 1u);
}

TEST_F(RankTensorsTest, EndByTheirNames) {
  uint64_t turn = 0;
  for (const char* const name : {"loss", "loss#len", "loss#blocks64", "loss#2", "lossy"}) {
    auto made = tensors_.request_turn(vector_of(name, 64), turn);
    ASSERT_TRUE(made.ok());
    const uint32_t number = requested();
    ASSERT_TRUE(answer(number, number).ok());
    made.value()->turn.store(1);
  }
  EXPECT_EQ(tensors_.unregister("loss").value(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(unregistered());
  EXPECT_FALSE(unregistered());
}

TEST(RankTensorsAlone, HaveMemoryOfTheirOwn) {
  const auto session = test::session_alone();
  RankTensors& tensors = session->tensors();
  const auto first = tensors.request(vector_of("a", 16)).take();
  const auto second = tensors.request(vector_of("b", 16)).take();
  ASSERT_TRUE(first->settled());
  EXPECT_NE(tensors.memory_of(*first->tensor), tensors.memory_of(*second->tensor));
  const std::shared_ptr<Segment> kept = tensors.memory_of(*first->tensor);
  Tensor* const tensor = first->tensor;
  ASSERT_TRUE(tensors.unregister({&tensor, 1}).ok());
  EXPECT_EQ(kept.use_count(), 1);
  TensorSpec on_shards = vector_of("c", 16);
  on_shards.mode = "ps:async";
  EXPECT_THAT(tensors.request(on_shards).status().message(), HasSubstr("GB-O912"));
}

}  // namespace
}  // namespace gradbus
