// Single agents driven by hand through the corners that random runs reach only by luck, with the
// exact actions expected, and the sentence that each wrong frame gets.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data_plane/collectives/collective.h"

namespace gradbus {
namespace {

using testing::HasSubstr;

// "credit 1, send sum 0" and the like: one action after another.
std::string step_text(const std::vector<Action>& actions) {
  constexpr const char* kNames[] = {"credit",  "send",    "stash", "accumulate", "finalize",
                                    "deliver", "release", "turn",  "finish"};
  std::string text;
  for (const Action& action : actions) {
    if (!text.empty()) text += ", ";
    text += kNames[static_cast<size_t>(action.kind)];
    switch (action.kind) {
      case Action::Kind::kSend:
        text += action.frame == FrameKind::kReduce ? " sum " : " result ";
        text += std::to_string(action.chunk);
        break;
      case Action::Kind::kAccumulate:
      case Action::Kind::kDeliver:
        text += " " + std::to_string(action.chunk) + " from " + std::to_string(action.buffer);
        break;
      case Action::Kind::kFinalize: text += " " + std::to_string(action.chunk); break;
      case Action::Kind::kRelease: text += " " + std::to_string(action.buffer); break;
      default: text += " " + std::to_string(action.round);
    }
  }
  return text;
}

uint32_t after(const CollectivePlan& plan) { return (plan.agent_index + 1) % plan.agents; }
uint32_t before(const CollectivePlan& plan) {
  return (plan.agent_index + plan.agents - 1) % plan.agents;
}

// Agent `index` of `agents`, one rank each; 5 f32 elements in chunks of 2.
CollectivePlan edge_plan(CollectiveKind kind, uint32_t agents, uint32_t index) {
  CollectivePlan plan;
  plan.kind = kind;
  plan.op = kind == CollectiveKind::kAllReduce ? ReduceOp::kSum : ReduceOp::kNone;
  plan.count = 5;
  plan.chunk_elements = 2;
  plan.agents = agents;
  plan.agent_index = index;
  for (uint32_t rank = 0; rank < agents; ++rank) plan.agent_of_rank.push_back(rank);
  return plan;
}

// One agent of a ring: credits come from the one after it, data from the one before. Each call
// returns the actions of that event as text.
class OneAgent {
 public:
  explicit OneAgent(const CollectivePlan& plan) : plan_(plan), collective_(make_collective(plan)) {}

  std::string begin(uint64_t round, std::vector<uint64_t> block_bytes = {}) {
    block_bytes.resize(plan_.agent_of_rank.size());
    actions_.clear();
    collective_->begin(round, block_bytes, actions_);
    return keep();
  }
  std::string reduced(uint32_t chunk) {
    actions_.clear();
    collective_->on_chunk_reduced(chunk, actions_);
    return keep();
  }
  std::string credit(uint64_t round) {
    actions_.clear();
    const Status status = collective_->on_credit(after(plan_), round, actions_);
    return status.ok() ? keep() : status.message();
  }
  std::string frame(const FrameHeader& header, uint32_t buffer) {
    actions_.clear();
    const Status status = collective_->on_frame(before(plan_), header, buffer, actions_);
    if (status.ok()) return keep();
    EXPECT_EQ(status.code(), Code::kCorrupt);
    EXPECT_TRUE(actions_.empty());
    return status.message();
  }
  // The oldest send that has not been reported.
  std::string sent() {
    if (sends_.empty()) return "no send is in flight";
    const Action send = sends_.front();
    sends_.erase(sends_.begin());
    actions_.clear();
    collective_->on_sent(send, actions_);
    return keep();
  }

  FrameHeader header(FrameKind kind, uint32_t chunk, uint64_t round = 1) const {
    FrameHeader header;
    header.kind = static_cast<uint8_t>(kind);
    header.dtype = static_cast<uint8_t>(plan_.dtype);
    header.op = static_cast<uint8_t>(plan_.op);
    header.collective = static_cast<uint8_t>(plan_.kind);
    header.tensor = 7;
    header.step = round;
    header.chunk = chunk;
    header.length = chunk == 2 ? 4 : 8;
    header.total = 5;
    return header;
  }
  FrameHeader block(uint32_t source, uint32_t chunk, uint32_t length, uint64_t total) const {
    FrameHeader block = header(FrameKind::kReduce, chunk);
    block.source = source;
    block.length = length;
    block.total = total;
    return block;
  }
  const std::vector<Action>& last() const { return actions_; }
  uint64_t active_round() const { return collective_->active_round(); }

 private:
  std::string keep() {
    for (const Action& action : actions_) {
      if (action.kind == Action::Kind::kSend) sends_.push_back(action);
    }
    return step_text(actions_);
  }

  CollectivePlan plan_;
  std::unique_ptr<Collective> collective_;
  std::vector<Action> actions_;
  std::vector<Action> sends_;
};

constexpr auto kSum = FrameKind::kReduce;
constexpr auto kResult = FrameKind::kGather;

OneAgent all_reduce(uint32_t agents, uint32_t index, uint64_t count) {
  CollectivePlan plan = edge_plan(CollectiveKind::kAllReduce, agents, index);
  plan.count = count;
  return OneAgent(plan);
}

// ---- all-reduce -------------------------------------------------------------------------------

TEST(AllReduceEdges, NothingIsSentBeforeTheCredit) {
  OneAgent agent(edge_plan(CollectiveKind::kAllReduce, 2, 1));  // starts chunks 0 and 2, owns 1
  EXPECT_EQ(agent.begin(1), "credit 1");
  EXPECT_EQ(agent.reduced(2), "");
  EXPECT_EQ(agent.reduced(0), "");
  EXPECT_EQ(agent.credit(1), "send sum 2, send sum 0");
  EXPECT_EQ(agent.last()[0].bytes, 4u);
  EXPECT_EQ(agent.last()[1].bytes, 8u);
  EXPECT_EQ(agent.last()[0].total, 5u);
}

TEST(AllReduceEdges, ResultWaitsForTheSendOfTheSumInTheSameMemory) {
  OneAgent agent(edge_plan(CollectiveKind::kAllReduce, 2, 1));
  agent.begin(1);
  agent.credit(1);
  EXPECT_EQ(agent.reduced(0), "send sum 0");
  EXPECT_EQ(agent.frame(agent.header(kResult, 0), 3), "");  // held: the send is in flight
  EXPECT_EQ(agent.sent(), "deliver 0 from 3, release 3");
}

TEST(AllReduceEdges, SumWaitsForTheLocalReduction) {
  OneAgent agent(edge_plan(CollectiveKind::kAllReduce, 2, 1));
  agent.begin(1);
  agent.credit(1);
  EXPECT_EQ(agent.frame(agent.header(kSum, 1), 2), "");
  EXPECT_EQ(agent.reduced(1), "accumulate 1 from 2, release 2, finalize 1, send result 1");
}

TEST(AllReduceEdges, OneChunkOnThreeAgents) {
  OneAgent owner = all_reduce(3, 0, 2);
  OneAgent first = all_reduce(3, 1, 2);
  OneAgent second = all_reduce(3, 2, 2);
  FrameHeader sum = owner.header(kSum, 0);
  FrameHeader result = owner.header(kResult, 0);
  sum.total = result.total = 2;
  for (OneAgent* agent : {&owner, &first, &second}) {
    agent->begin(1);
    agent->credit(1);
  }
  EXPECT_EQ(first.reduced(0), "send sum 0");
  EXPECT_EQ(first.sent(), "");
  EXPECT_EQ(second.reduced(0), "");
  EXPECT_EQ(second.frame(sum, 5), "accumulate 0 from 5, release 5, send sum 0");
  EXPECT_EQ(second.sent(), "");
  EXPECT_EQ(owner.reduced(0), "");
  EXPECT_EQ(owner.frame(sum, 5), "accumulate 0 from 5, release 5, finalize 0, send result 0");
  EXPECT_EQ(owner.sent(), "finish 1");
  EXPECT_EQ(first.frame(result, 6), "deliver 0 from 6, release 6, send result 0");
  EXPECT_EQ(first.sent(), "finish 1");
  EXPECT_EQ(second.frame(result, 6), "deliver 0 from 6, release 6, finish 1");
}

TEST(AllReduceEdges, NoElementsStillNeedEveryAgent) {
  OneAgent owner = all_reduce(2, 0, 0);
  OneAgent starter = all_reduce(2, 1, 0);
  FrameHeader sum = owner.header(kSum, 0);
  sum.length = 0;
  sum.total = 0;
  FrameHeader result = sum;
  result.kind = static_cast<uint8_t>(kResult);
  EXPECT_EQ(starter.begin(1), "credit 1");
  EXPECT_EQ(starter.reduced(0), "");  // allowed, not needed
  EXPECT_EQ(starter.credit(1), "send sum 0");
  EXPECT_EQ(starter.sent(), "");
  EXPECT_EQ(starter.active_round(), 1u);  // the other one has not begun
  EXPECT_EQ(owner.begin(1), "credit 1");
  EXPECT_EQ(owner.frame(sum, 0), "accumulate 0 from 0, release 0, finalize 0");
  EXPECT_EQ(owner.credit(1), "send result 0");
  EXPECT_EQ(starter.frame(result, 0), "deliver 0 from 0, release 0, finish 1");
  EXPECT_EQ(owner.sent(), "finish 1");
}

TEST(AllReduceEdges, CreditOfTheNextRoundComesEarlyAndOnce) {
  OneAgent agent = all_reduce(2, 0, 0);  // owner
  FrameHeader sum = agent.header(kSum, 0);
  sum.length = 0;
  sum.total = 0;
  EXPECT_EQ(agent.credit(1), "");  // before this agent has begun
  EXPECT_THAT(agent.credit(2), HasSubstr("credit for round 2 after the one for round 1"));
  agent.begin(1);
  EXPECT_EQ(agent.frame(sum, 0), "accumulate 0 from 0, release 0, finalize 0, send result 0");
  EXPECT_EQ(agent.credit(2), "");  // the successor has the result; on_sent is still to come
  EXPECT_THAT(agent.credit(2), HasSubstr("credit for round 2 after the one for round 2"));
  EXPECT_THAT(agent.credit(3), HasSubstr("while this agent is in round 1"));
  EXPECT_EQ(agent.sent(), "finish 1");
  EXPECT_EQ(agent.begin(2), "credit 2");
  sum.step = 2;
  EXPECT_EQ(agent.frame(sum, 0), "accumulate 0 from 0, release 0, finalize 0, send result 0");
}

TEST(AllReduceEdges, SendsAreBoundedAndGoOnAsTheyEnd) {
  CollectivePlan plan = edge_plan(CollectiveKind::kAllReduce, 2, 1);
  plan.chunk_elements = 1;
  plan.count = uint64_t{4} * kSendsInFlightMax;  // half of the chunks start here
  OneAgent agent(plan);
  agent.begin(1);
  for (uint32_t chunk = 0; chunk < plan.chunks(); ++chunk) agent.reduced(chunk);
  agent.credit(1);
  EXPECT_EQ(agent.last().size(), kSendsInFlightMax);
  EXPECT_EQ(agent.sent(), "send sum " + std::to_string(2 * kSendsInFlightMax));
}

TEST(AllReduceEdges, EveryWrongFieldIsNamed) {
  OneAgent agent(edge_plan(CollectiveKind::kAllReduce, 2, 1));
  const FrameHeader good = agent.header(kSum, 1);
  EXPECT_THAT(agent.frame(good, 0), HasSubstr("no round has begun here"));
  agent.begin(1);
  const auto with = [&](auto field, uint64_t value) {
    FrameHeader bad = good;
    bad.*field = static_cast<std::remove_reference_t<decltype(bad.*field)>>(value);
    return agent.frame(bad, 0);
  };
  using H = FrameHeader;
  EXPECT_THAT(with(&H::step, 2), HasSubstr("tensor 7, round 2, chunk 1: step is 2, expected 1"));
  EXPECT_THAT(with(&H::collective, 2), HasSubstr("collective is 2, expected 1"));
  EXPECT_THAT(with(&H::codec, 1), HasSubstr("codec is 1, expected 0"));
  EXPECT_THAT(with(&H::dtype, 2), HasSubstr("dtype is 2, expected 1"));
  EXPECT_THAT(with(&H::op, 2), HasSubstr("op is 2, expected 1"));
  EXPECT_THAT(with(&H::source, 9), HasSubstr("source is 9, expected 0"));
  EXPECT_THAT(with(&H::total, 6), HasSubstr("total is 6, expected 5"));
  EXPECT_THAT(with(&H::chunk, 3), HasSubstr("chunk is 3, expected less than 3"));
  EXPECT_THAT(with(&H::chunk, 2), HasSubstr("length is 8, expected 4"));
  EXPECT_THAT(with(&H::length, 7), HasSubstr("length is 7, expected 8"));
  EXPECT_THAT(with(&H::kind, 2), HasSubstr("kind is 2, expected 3 or 4"));
  EXPECT_THAT(with(&H::kind, 4), HasSubstr("kind is 4, but the result is made here"));
  EXPECT_THAT(with(&H::chunk, 0), HasSubstr("kind is 3, but the sum of this chunk starts here"));
  EXPECT_EQ(agent.frame(good, 0), "");
  EXPECT_THAT(agent.frame(good, 1), HasSubstr("kind is 3 for the second time"));
}

TEST(AllReduceEdges, ResultBeforeOrAfterItsTimeIsRefused) {
  OneAgent agent(edge_plan(CollectiveKind::kAllReduce, 2, 1));
  agent.begin(1);
  agent.reduced(0);
  const FrameHeader result = agent.header(kResult, 0);
  EXPECT_THAT(agent.frame(result, 0), HasSubstr("kind is 4, but the sum has not passed here yet"));
  agent.credit(1);
  agent.sent();
  EXPECT_EQ(agent.frame(result, 0), "deliver 0 from 0, release 0");
  EXPECT_THAT(agent.frame(result, 0), HasSubstr("kind is 4 for the second time"));
}

// ---- broadcast --------------------------------------------------------------------------------

TEST(BroadcastEdges, ChainOfThree) {
  CollectivePlan plan = edge_plan(CollectiveKind::kBroadcast, 3, 0);
  plan.root = 1;
  plan.agent_index = 1;
  OneAgent root(plan);
  plan.agent_index = 2;
  OneAgent middle(plan);
  plan.agent_index = 0;
  OneAgent last(plan);
  EXPECT_EQ(root.begin(1), "");  // no data comes to the root, so it gives no credit
  EXPECT_EQ(root.credit(1), "send sum 0, send sum 1, send sum 2");
  EXPECT_EQ(middle.begin(1), "credit 1");
  EXPECT_EQ(middle.frame(root.header(kSum, 2), 4), "deliver 2 from 4, release 4");
  EXPECT_EQ(middle.credit(1), "send sum 2");
  EXPECT_EQ(last.begin(1), "credit 1");
  EXPECT_EQ(last.frame(root.header(kSum, 2), 0), "deliver 2 from 0, release 0");
  EXPECT_EQ(last.frame(root.header(kSum, 0), 0), "deliver 0 from 0, release 0");
  EXPECT_EQ(last.frame(root.header(kSum, 1), 0), "deliver 1 from 0, release 0, finish 1");
  EXPECT_EQ(root.sent() + root.sent() + root.sent(), "finish 1");
}

TEST(BroadcastEdges, TheUnusedEdgeIsRefused) {
  OneAgent root(edge_plan(CollectiveKind::kBroadcast, 2, 0));
  OneAgent last(edge_plan(CollectiveKind::kBroadcast, 2, 1));
  root.begin(1);
  last.begin(1);
  EXPECT_THAT(root.frame(root.header(kSum, 0), 0), HasSubstr("no data ever comes over this link"));
  EXPECT_THAT(last.credit(1), HasSubstr("nothing is ever sent on this link"));
  EXPECT_EQ(last.frame(root.header(kSum, 0), 0), "deliver 0 from 0, release 0");
  EXPECT_THAT(last.frame(root.header(kSum, 0), 0), HasSubstr("for the second time"));
  EXPECT_THAT(last.frame(root.header(kResult, 1), 0), HasSubstr("kind is 4, expected 3"));
}

// ---- all-gather -------------------------------------------------------------------------------

TEST(AllGatherEdges, EmptyBlocksAreOneEmptyFrameEach) {
  OneAgent agent(edge_plan(CollectiveKind::kAllGather, 2, 0));
  EXPECT_EQ(agent.begin(1, {0, 99}), "credit 1");
  EXPECT_EQ(agent.credit(1), "send sum 0");
  EXPECT_EQ(agent.last()[0].bytes, 0u);
  EXPECT_EQ(agent.last()[0].total, 0u);
  EXPECT_EQ(agent.frame(agent.block(1, 0, 0, 0), 2), "deliver 0 from 2, release 2");
  EXPECT_EQ(agent.last()[0].source, 1u);
  EXPECT_EQ(agent.sent(), "finish 1");
}

TEST(AllGatherEdges, BlocksGoOnUntilTheAgentBeforeTheirOwn) {
  OneAgent agent(edge_plan(CollectiveKind::kAllGather, 3, 1));  // 2 follows, 0 comes before
  agent.begin(1, {0, 12, 0});
  EXPECT_EQ(agent.frame(agent.block(0, 1, 4, 12), 0), "deliver 1 from 0, release 0");
  EXPECT_EQ(agent.credit(1), "send sum 0, send sum 1, send sum 1");  // own chunks, then rank 0's
  EXPECT_EQ(agent.last()[2].source, 0u);
  EXPECT_EQ(agent.frame(agent.block(2, 0, 0, 0), 0), "deliver 0 from 0, release 0");
  EXPECT_EQ(agent.frame(agent.block(0, 0, 8, 12), 0), "deliver 0 from 0, release 0, send sum 0");
  EXPECT_EQ(agent.sent() + agent.sent() + agent.sent() + agent.sent(), "finish 1");
}

TEST(AllGatherEdges, EveryWrongFieldIsNamed) {
  OneAgent agent(edge_plan(CollectiveKind::kAllGather, 3, 1));
  agent.begin(1);
  const auto reply = [&](uint32_t source, uint32_t chunk, uint32_t length, uint64_t total) {
    return agent.frame(agent.block(source, chunk, length, total), 0);
  };
  EXPECT_THAT(reply(3, 0, 8, 12), HasSubstr("source is 3, expected less than 3"));
  EXPECT_THAT(reply(1, 0, 8, 12), HasSubstr("source is 1, a block of this agent"));
  EXPECT_THAT(reply(0, 0, 8, 24), HasSubstr("total is 24, expected less than 21"));
  EXPECT_THAT(reply(0, 0, 8, 10), HasSubstr("total % element bytes is 2, expected 0"));
  EXPECT_THAT(reply(0, 2, 4, 12), HasSubstr("chunk is 2, expected less than 2"));
  EXPECT_THAT(reply(0, 1, 8, 12), HasSubstr("length is 8, expected 4"));
  EXPECT_EQ(reply(0, 0, 8, 12), "deliver 0 from 0, release 0");
  EXPECT_THAT(reply(0, 1, 8, 16), HasSubstr("total is 16, expected 12"));
  EXPECT_THAT(reply(0, 0, 8, 12), HasSubstr("chunk of source 0 for the second time"));
}

}  // namespace
}  // namespace gradbus
