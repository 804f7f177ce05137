// Recursive doubling driven by hand: who sends what to whom and in which order, frames that come
// early, and the sentence that each wrong frame gets.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data_plane/collectives/collective.h"

namespace gradbus {
namespace {

using testing::HasSubstr;

constexpr auto kSum = FrameKind::kReduce;
constexpr auto kResult = FrameKind::kGather;

std::string text_of(const Action& action) {
  const std::string from = action.stashed ? " from slot " + std::to_string(action.slot)
                                          : " from " + std::to_string(action.buffer);
  switch (action.kind) {
    case Action::Kind::kCredit: return "credit to " + std::to_string(action.peer);
    case Action::Kind::kSend:
      return std::string(action.frame == kSum ? "sum" : "result") + " to " +
             std::to_string(action.peer);
    case Action::Kind::kStash: return "stash " + std::to_string(action.slot);
    case Action::Kind::kAccumulate:
      return std::string(action.payload_first ? "lower" : "higher") + from;
    case Action::Kind::kFinalize: return "finalize";
    case Action::Kind::kDeliver: return "deliver" + from;
    case Action::Kind::kRelease: return "release";
    case Action::Kind::kTakeTurn: return "turn";
    case Action::Kind::kFinish: return "finish";
  }
  return "?";
}

class OneAgent {
 public:
  // 3 f32 elements.
  OneAgent(uint32_t agents, uint32_t index) {
    plan_.algorithm = Algorithm::kRecursiveDoubling;
    plan_.count = 3;
    plan_.chunk_elements = 3;
    plan_.agents = agents;
    plan_.agent_index = index;
    for (uint32_t rank = 0; rank < agents; ++rank) plan_.agent_of_rank.push_back(rank);
    collective_ = make_collective(plan_);
  }

  std::string open() {
    collective_->open(actions_);
    return keep();
  }
  // Every peer has registered the tensor.
  OneAgent& welcome() {
    for (const auto& target : collective_->needs().targets) credit(target.peer, 1);
    return *this;
  }
  std::string begin(uint64_t round) {
    collective_->begin(round, {}, actions_);
    return keep();
  }
  std::string reduced() {
    collective_->on_chunk_reduced(0, actions_);
    return keep();
  }
  std::string credit(uint32_t from, uint64_t round) {
    const Status status = collective_->on_credit(from, round, actions_);
    return status.ok() ? keep() : status.message();
  }
  std::string sent() {
    collective_->on_sent(Action{}, actions_);
    return keep();
  }
  std::string frame(uint32_t from, FrameKind kind, uint64_t round, uint32_t buffer = 0) {
    return frame(from, header(kind, round), buffer);
  }
  std::string frame(uint32_t from, const FrameHeader& header, uint32_t buffer = 0) {
    const Status status = collective_->on_frame(from, header, buffer, actions_);
    EXPECT_TRUE(status.ok() || actions_.empty());
    return status.ok() ? keep() : status.message();
  }
  FrameHeader header(FrameKind kind, uint64_t round) const {
    FrameHeader header;
    header.kind = static_cast<uint8_t>(kind);
    header.dtype = static_cast<uint8_t>(plan_.dtype);
    header.op = static_cast<uint8_t>(plan_.op);
    header.collective = static_cast<uint8_t>(plan_.kind);
    header.tensor = 7;
    header.step = round;
    header.length = 12;
    header.total = 3;
    return header;
  }

 private:
  std::string keep() {
    std::string text;
    for (const Action& action : actions_) text += (text.empty() ? "" : ", ") + text_of(action);
    actions_.clear();
    return text;
  }

  CollectivePlan plan_;
  std::unique_ptr<Collective> collective_;
  std::vector<Action> actions_;
};

TEST(RecursiveDoubling, TwoAgentsNeedOneMessageEachWay) {
  OneAgent lower(2, 0);
  EXPECT_EQ(lower.open(), "credit to 1");
  EXPECT_EQ(lower.begin(1), "");
  EXPECT_EQ(lower.reduced(), "");  // the other one may not know the tensor yet
  EXPECT_EQ(lower.credit(1, 1), "sum to 1");
  EXPECT_EQ(lower.sent(), "");
  EXPECT_EQ(lower.frame(1, kSum, 1, 5), "higher from 5, release, finalize, finish");
  EXPECT_EQ(lower.begin(2), "");
  EXPECT_EQ(lower.reduced(), "sum to 1");  // no credit any more
}

TEST(RecursiveDoubling, TheLowerAgentsSumIsAlwaysTheLeftOperand) {
  OneAgent higher(2, 1);
  higher.welcome().begin(1);
  higher.reduced();
  higher.sent();
  EXPECT_EQ(higher.frame(0, kSum, 1, 5), "lower from 5, release, finalize, finish");
}

TEST(RecursiveDoubling, FramesThatComeEarlyAreStashed) {
  OneAgent agent(2, 0);
  agent.welcome();
  EXPECT_EQ(agent.frame(1, kSum, 1), "stash 1, release");  // before the round has begun
  EXPECT_EQ(agent.begin(1), "");
  EXPECT_EQ(agent.reduced(), "sum to 1");
  EXPECT_EQ(agent.frame(1, kSum, 2), "stash 0, release");  // the other one is a round ahead
  EXPECT_EQ(agent.sent(), "higher from slot 1, finalize, finish");
  EXPECT_EQ(agent.begin(2), "");
  EXPECT_EQ(agent.reduced(), "sum to 1");
  EXPECT_EQ(agent.sent(), "higher from slot 0, finalize, finish");
}

TEST(RecursiveDoubling, TheSumUnderASendIsNotTouched) {
  OneAgent agent(2, 0);
  agent.welcome().begin(1);
  agent.reduced();
  EXPECT_EQ(agent.frame(1, kSum, 1), "stash 1, release");
  EXPECT_EQ(agent.sent(), "higher from slot 1, finalize, finish");
}

TEST(RecursiveDoubling, SixAgentsFoldTwoExchangeTwiceAndTellTheTwo) {
  OneAgent core(6, 1);
  core.welcome().begin(1);
  core.reduced();
  EXPECT_EQ(core.frame(3, kSum, 1), "stash 5, release");  // an exchange ahead
  EXPECT_EQ(core.frame(5, kSum, 1, 2), "higher from 2, release, sum to 0");
  EXPECT_EQ(core.sent(), "");
  EXPECT_EQ(core.frame(0, kSum, 1, 2), "lower from 2, release, sum to 3");
  EXPECT_EQ(core.sent(), "higher from slot 5, finalize, result to 5");
  EXPECT_EQ(core.sent(), "finish");
  OneAgent extra(6, 5);
  EXPECT_EQ(extra.open(), "credit to 1");
  extra.welcome().begin(1);
  EXPECT_EQ(extra.reduced(), "sum to 1");
  EXPECT_EQ(extra.sent(), "");
  EXPECT_EQ(extra.frame(1, kResult, 1, 4), "deliver from 4, release, finish");
  OneAgent other(6, 2);  // neither folds nor is folded
  other.welcome().begin(1);
  EXPECT_EQ(other.reduced(), "sum to 3");
}

TEST(RecursiveDoubling, EveryWrongFieldIsNamed) {
  OneAgent agent(6, 1);
  agent.welcome().begin(1);
  const FrameHeader good = agent.header(kSum, 1);
  const auto with = [&](auto field, uint64_t value) {
    FrameHeader bad = good;
    bad.*field = static_cast<std::remove_reference_t<decltype(bad.*field)>>(value);
    return agent.frame(0, bad);
  };
  using H = FrameHeader;
  EXPECT_THAT(with(&H::step, 0), HasSubstr("step is 0, expected 1"));
  EXPECT_THAT(with(&H::step, 3), HasSubstr("step is 3, expected 1"));
  EXPECT_THAT(with(&H::collective, 2), HasSubstr("collective is 2, expected 1"));
  EXPECT_THAT(with(&H::dtype, 2), HasSubstr("dtype is 2, expected 1"));
  EXPECT_THAT(with(&H::op, 2), HasSubstr("op is 2, expected 1"));
  EXPECT_THAT(with(&H::source, 1), HasSubstr("source is 1, expected 0"));
  EXPECT_THAT(with(&H::total, 6), HasSubstr("total is 6, expected 3"));
  EXPECT_THAT(with(&H::chunk, 1), HasSubstr("chunk is 1, expected less than 1"));
  EXPECT_THAT(with(&H::length, 8), HasSubstr("length is 8, expected 12"));
  EXPECT_THAT(with(&H::kind, 4), HasSubstr("kind is 4, expected 3"));
  EXPECT_THAT(agent.frame(2, good), HasSubstr("no data ever comes over this link"));
  EXPECT_EQ(agent.frame(0, good), "stash 3, release");
  EXPECT_THAT(agent.frame(0, good), HasSubstr("sum of agent 0 for the second time"));
  EXPECT_THAT(agent.credit(0, 1), HasSubstr("this tensor has one credit, for round 1"));
  EXPECT_THAT(agent.credit(2, 1), HasSubstr("nothing is ever sent on this link"));
}

}  // namespace
}  // namespace gradbus
