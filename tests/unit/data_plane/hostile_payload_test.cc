// Tests what shards and agents refuse in payloads: impossible frames, parts that arrive twice, and
// payloads that no codec has written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "compression/payload.h"
#include "data_plane/collectives/payload_push_pull.h"
#include "server/parameter_server/shard_tensor.h"
#include "tests/unit/data_plane/engine_cluster.h"
#include "worker_agent/compressed/partitions.h"

namespace gradbus {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint64_t kHostilePartition = 200'000;  // 400,016 bytes as half floats: two frames
constexpr uint64_t kBytes = kPayloadHeaderBytes + 2 * kHostilePartition;

CompressionPlan half_floats() {
  return {parse_compression("fp16").take(), Communicator::kPs, kHostilePartition, 0};
}

// ---- a shard with partitions 0 and 2 of three; two agents push

class BadPayload : public testing::Test {
 protected:
  BadPayload() {
    plan_.collective.count = 3 * kHostilePartition;
    plan_.collective.agents = 2;
    plan_.collective.shards = 2;
    plan_.name = "t";
    plan_.mode = parse_mode("ps:sync").take();
    plan_.compression = half_floats();
    tensor_ = make_shard_tensor(plan_, *transport_).take();
    const std::vector<float> values(kHostilePartition, 1.5F);
    const auto codec = make_codec(plan_.compression.spec, {.count_max = kHostilePartition});
    payload_.resize(codec->payload_bytes_max(kHostilePartition));
    payload_.resize(codec->encode({.gradient = values}, payload_));
    header_.kind = static_cast<uint8_t>(FrameKind::kReduce);
    header_.codec = static_cast<uint8_t>(CodecId::kFp16);
    header_.dtype = static_cast<uint8_t>(DType::kU8);
    header_.op = static_cast<uint8_t>(ReduceOp::kNone);
    header_.collective = static_cast<uint8_t>(CollectiveKind::kGather);
    header_.source = std::bit_cast<uint32_t>(1.0F);
    header_.step = 1;
    header_.total = kBytes;
    header_.length = kPayloadChunkBytes;
  }

  Status push(uint32_t agent) {
    const size_t first = std::min(header_.chunk * kPayloadChunkBytes, payload_.size());
    const size_t length = std::min<size_t>(header_.length, payload_.size() - first);
    const auto bytes = std::span<const std::byte>(payload_).subspan(first, length);
    return tensor_->on_push(agent, header_, bytes, 0, answers_);
  }
  Status push(uint32_t agent, uint32_t frame) {
    header_.chunk = frame;
    header_.length = static_cast<uint32_t>(PayloadCut{header_.total}.bytes_of(frame));
    return push(agent);
  }
  void push_all(uint32_t agent) {
    ASSERT_TRUE(push(agent, 1).ok());
    ASSERT_TRUE(push(agent, 0).ok());
  }
  void refused(const std::string& what, uint32_t agent = 0) {
    const size_t before = answers_.size();
    const Status status = push(agent);
    EXPECT_EQ(status.code(), Code::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr(what));
    EXPECT_THAT(answers_, SizeIs(before));
  }

  std::unique_ptr<Transport> transport_ = test::loopback();
  ShardPlan plan_;
  std::unique_ptr<ShardTensor> tensor_;
  FrameHeader header_;
  std::vector<std::byte> payload_;
  std::vector<ShardAnswer> answers_;
};

TEST_F(BadPayload, IsRefusedByItsField) {
  ASSERT_THAT(payload_, SizeIs(kBytes));
  const FrameHeader good = header_;
  const auto with = [&](auto change) {
    header_ = good;
    change(header_);
  };
  with([](FrameHeader& h) { h.kind = static_cast<uint8_t>(FrameKind::kGather); });
  refused("kind is 4, expected 3");
  with([](FrameHeader& h) { h.codec = static_cast<uint8_t>(CodecId::kBf16); });
  refused("codec is 2, expected 1");
  with([](FrameHeader& h) { h.collective = static_cast<uint8_t>(CollectiveKind::kAllReduce); });
  refused("collective is 1, expected 6");
  with([](FrameHeader& h) { h.operation = 1; });
  refused("a chunk that another shard holds");
  with([](FrameHeader& h) { h.operation = 3; });
  refused("a chunk that another shard holds");
  with([](FrameHeader& h) { h.operation = UINT16_MAX; });
  refused("a chunk that another shard holds");
  with([](FrameHeader& h) { h.total = uint64_t{1} << 60; });
  refused("expected less than " + std::to_string(kBytes + 1));
  with([](FrameHeader& h) { h.chunk = 2, h.length = 0; });
  refused("chunk is 2, expected less than 2");
  with([](FrameHeader& h) { h.length = 4; });
  refused("length is 4, expected 262144");
  with([](FrameHeader& h) { h.step = 2; });
  refused("step is 2, expected 1");
  for (const float scale : {-1.0F, std::numeric_limits<float>::infinity()}) {
    with([&](FrameHeader& h) { h.source = std::bit_cast<uint32_t>(scale); });
    refused("a memory scale of nonsense");
  }
  header_ = good;
  refused("a push of another shard", 2);
  EXPECT_TRUE(push(0).ok());
}

// Expect: parts of one payload have the same length, and each is accepted once.
TEST_F(BadPayload, IsNotTakenTwice) {
  ASSERT_TRUE(push(0, 0).ok());
  refused("a part of a payload for the second time");
  header_.total = kBytes - 2;
  refused("total is " + std::to_string(kBytes - 2) + ", expected " + std::to_string(kBytes));
  header_.total = kBytes;
  ASSERT_TRUE(push(0, 1).ok());
  refused("step is 1, expected 2");
  header_.step = 2;
  refused("a push before the last one was answered");
  EXPECT_THAT(answers_, IsEmpty());
}

// Expect: the error names the tensor, and no answer to other agents contains the payload.
TEST_F(BadPayload, ThatNoCodecHasWrittenNamesTheTensor) {
  ASSERT_NO_FATAL_FAILURE(push_all(1));
  payload_[0] = std::byte{99};
  ASSERT_TRUE(push(0, 1).ok());
  header_.chunk = 0;
  header_.length = kPayloadChunkBytes;
  const Status status = push(0);
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("GB-D611"), HasSubstr("tensor \"t\"")));
  EXPECT_THAT(answers_, IsEmpty());
}

// Expect: both agents get the sum in two frames. An agent whose answer is being sent must wait; an
// agent whose whole answer was sent need not.
TEST_F(BadPayload, NoneOfTheOthersIsRefused) {
  ASSERT_NO_FATAL_FAILURE(push_all(1));
  ASSERT_NO_FATAL_FAILURE(push_all(0));
  ASSERT_THAT(answers_, SizeIs(4));
  const FrameHeader first = tensor_->frame(answers_[0]);
  EXPECT_EQ(first.operation, 0);
  EXPECT_EQ(first.chunk, 0u);
  EXPECT_EQ(first.total, kBytes);
  EXPECT_EQ(first.kind, static_cast<uint8_t>(FrameKind::kGather));
  EXPECT_EQ(tensor_->frame(answers_[1]).chunk, 1u);
  EXPECT_EQ(tensor_->slice(answers_[1]).offset,
            tensor_->slice(answers_[0]).offset + kPayloadChunkBytes);
  EXPECT_EQ(answers_[0].bytes + answers_[1].bytes, kBytes);
  header_.step = 2;
  tensor_->on_sent(answers_[1]);
  EXPECT_TRUE(tensor_->must_wait(0, header_));
  tensor_->on_sent(answers_[0]);
  EXPECT_FALSE(tensor_->must_wait(0, header_));
  EXPECT_TRUE(tensor_->must_wait(1, header_));
  EXPECT_TRUE(push(0, 0).ok());
}

// ---- an agent whose partition is on shard 1 of two: peer 3

Stage stage_of_agent() {
  PartitionPlan partition;
  partition.spec = parse_compression("fp16").take();
  partition.index = 1;
  partition.shards = 2;
  return shard_stage(partition, kBytes);
}

class BadAnswer : public testing::Test {
 protected:
  BadAnswer() {
    header_.kind = static_cast<uint8_t>(FrameKind::kGather);
    header_.codec = static_cast<uint8_t>(CodecId::kFp16);
    header_.dtype = static_cast<uint8_t>(DType::kU8);
    header_.op = static_cast<uint8_t>(ReduceOp::kNone);
    header_.collective = static_cast<uint8_t>(CollectiveKind::kGather);
    header_.step = 1;
    header_.total = 1000;
    header_.length = 1000;
  }
  void begin(uint64_t bytes) {
    const uint64_t lengths[] = {bytes, 0};
    collective_->begin(1, lengths, actions_);
    sends_ = actions_;
    actions_.clear();
  }
  void refused(const std::string& what, uint32_t from = 3) {
    const Status status = collective_->on_frame(from, header_, 0, actions_);
    EXPECT_EQ(status.code(), Code::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr(what));
    EXPECT_THAT(actions_, IsEmpty());
  }

  std::unique_ptr<Collective> collective_ = make_collective(stage_of_agent().plan);
  FrameHeader header_;
  std::vector<Action> actions_;
  std::vector<Action> sends_;
};

TEST_F(BadAnswer, IsRefusedByItsField) {
  refused("no round has begun here");
  ASSERT_NO_FATAL_FAILURE(begin(1000));
  ASSERT_THAT(sends_, SizeIs(1));
  EXPECT_EQ(sends_[0].peer, 3u);
  refused("no data ever comes over this link", 2);
  const FrameHeader good = header_;
  const auto with = [&](auto change) {
    header_ = good;
    change(header_);
  };
  with([](FrameHeader& h) { h.kind = static_cast<uint8_t>(FrameKind::kReduce); });
  refused("kind is 3, expected 4");
  with([](FrameHeader& h) { h.step = 2; });
  refused("step is 2, expected 1");
  with([](FrameHeader& h) { h.total = kBytes + 1; });
  refused("expected less than " + std::to_string(kBytes + 1));
  with([](FrameHeader& h) { h.chunk = 1; });
  refused("chunk is 1, expected less than 1");
  with([](FrameHeader& h) { h.length = 999; });
  refused("length is 999, expected 1000");
}

// Expect: a shard cannot have summed frames that the transport does not have yet: it has 64 of 100.
TEST(EarlyAnswer, IsRefused) {
  PartitionPlan partition;
  partition.spec = parse_compression("fp16").take();
  partition.shards = 1;
  const auto collective = make_collective(shard_stage(partition, 100 * kPayloadChunkBytes).plan);
  std::vector<Action> actions;
  const uint64_t lengths[] = {100 * kPayloadChunkBytes, 0};
  collective->begin(1, lengths, actions);
  EXPECT_THAT(actions, SizeIs(kSendsInFlightMax));
  FrameHeader header;
  header.kind = static_cast<uint8_t>(FrameKind::kGather);
  header.codec = static_cast<uint8_t>(CodecId::kFp16);
  header.dtype = static_cast<uint8_t>(DType::kU8);
  header.op = static_cast<uint8_t>(ReduceOp::kNone);
  header.collective = static_cast<uint8_t>(CollectiveKind::kGather);
  header.step = 1;
  EXPECT_THAT(collective->on_frame(2, header, 0, actions).message(),
              HasSubstr("an answer to a payload that was not pushed"));
}

// Expect: the answer may arrive before the end of the push. The round ends after both.
TEST_F(BadAnswer, IsNotTakenTwice) {
  ASSERT_NO_FATAL_FAILURE(begin(1000));
  header_.total = kBytes;
  header_.length = kPayloadChunkBytes;
  ASSERT_TRUE(collective_->on_frame(3, header_, 0, actions_).ok());
  actions_.clear();
  refused("a part of an answer for the second time");
  header_.total = kBytes - 1;
  refused("total is " + std::to_string(kBytes - 1));
  header_.total = kBytes;
  header_.chunk = 1;
  header_.length = static_cast<uint32_t>(kBytes - kPayloadChunkBytes);
  ASSERT_TRUE(collective_->on_frame(3, header_, 0, actions_).ok());
  EXPECT_EQ(collective_->active_round(), 1u);
  collective_->on_sent(sends_[0], actions_);
  EXPECT_EQ(collective_->active_round(), 0u);
  EXPECT_EQ(actions_.back().kind, Action::Kind::kFinish);
}

// Expect: an answer that no codec has written is refused before the first write. The error names
// its shard.
TEST(BadAnswerPayload, NamesItsShard) {
  std::vector<float> rank_buffer(100, 7);
  PartitionPlan plan;
  plan.spec = parse_compression("onebit").take();
  plan.communicator = Communicator::kPs;
  plan.count = plan.shape.count_max = rank_buffer.size();
  plan.index = 1;
  plan.shards = 2;
  plan.rank_buffers = {rank_buffer.data()};
  const auto partition = make_partition(plan);
  const Stage& stage = partition->stages().front();
  std::vector<std::byte> memory(stage.bytes);
  CollectiveOperation operation({0, 1}, stage.plan, {{}, 0, memory.data(), stage.stride}, {}, {});
  partition->attach(0, &operation, memory);
  const auto pushed = partition->start(1)[0];
  const std::vector<float> before = rank_buffer;
  std::vector<std::byte> answer(memory.begin(), memory.begin() + static_cast<ptrdiff_t>(pushed));
  answer[4] = std::byte{101};  // its number of elements
  Action deliver{.kind = Action::Kind::kDeliver, .source = PayloadPushPull::kAnswerBlock};
  deliver.bytes = deliver.total = answer.size();
  operation.deliver(deliver, answer);
  const Status status = partition->advance(0).status();
  EXPECT_THAT(status.message(), AllOf(HasSubstr("GB-D611"), HasSubstr("shard 1")));
  EXPECT_EQ(rank_buffer, before);
}

}  // namespace
}  // namespace gradbus
