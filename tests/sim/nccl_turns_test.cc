// All agents of a job and its tensors that go by NCCL: posts, sums, messages and NCCL's work in
// random order, frames overtaking one another. Every agent does the same turns in the same order,
// and every round ends.
#include "data_plane/collectives/nccl_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "tests/sim/random.h"

namespace gradbus {
namespace {

using sim::pick;
using testing::HasSubstr;

constexpr uint32_t kTensors = 5;
constexpr uint64_t kRounds = 4;

CollectivePlan turns_plan(uint32_t agent, uint32_t agents, std::shared_ptr<uint64_t> turns) {
  CollectivePlan plan;
  plan.count = 100;
  plan.chunk_elements = 64;
  plan.agent_index = agent;
  plan.agents = agents;
  plan.by_nccl = true;
  plan.turns = std::move(turns);
  return plan;
}

FrameHeader header_of(const CollectivePlan& plan, const Action& send, uint32_t tensor) {
  FrameHeader header;
  header.kind = static_cast<uint8_t>(send.frame);
  header.dtype = static_cast<uint8_t>(plan.dtype);
  header.op = static_cast<uint8_t>(plan.op);
  header.collective = static_cast<uint8_t>(plan.kind);
  header.tensor = tensor;
  header.step = send.round;
  header.total = send.total;
  return header;
}

class Job {
 public:
  Job(uint32_t agents, uint64_t seed) : agents_(agents), random_(seed), done_(agents) {
    for (uint32_t agent = 0; agent < agents; ++agent) {
      const auto turns = std::make_shared<uint64_t>(0);
      for (uint32_t tensor = 0; tensor < kTensors; ++tensor) {
        plans_[{agent, tensor}] = turns_plan(agent, agents, turns);
        parts_[{agent, tensor}] = make_collective(plans_[{agent, tensor}]);
        events_.push_back({Event::kBegin, agent, tensor, {}});
      }
    }
  }

  void run() {
    while (!events_.empty()) {
      const auto index = static_cast<size_t>(pick(random_, 0, events_.size() - 1));
      const Event event = events_[index];
      events_.erase(events_.begin() + static_cast<ptrdiff_t>(index));
      happen(event);
      work_on_turns(event.agent);
    }
  }

  // By agent: tensor and round of each turn.
  const std::vector<std::vector<std::pair<uint32_t, uint64_t>>>& done() const { return done_; }

 private:
  using Key = std::pair<uint32_t, uint32_t>;  // agent, tensor
  struct Event {
    enum Kind : uint8_t { kBegin, kReduced, kCredit, kFrame, kSent } kind;
    uint32_t agent;
    uint32_t tensor;
    Action action;
    uint32_t from = 0;
  };

  void happen(const Event& event) {
    Collective& part = *parts_.at({event.agent, event.tensor});
    std::vector<Action> actions;
    switch (event.kind) {
      case Event::kBegin: {
        const uint64_t round = ++rounds_[{event.agent, event.tensor}];
        part.begin(round, {}, actions);
        chunks_[{event.agent, event.tensor}] = 0;
        events_.push_back({Event::kReduced, event.agent, event.tensor, {}});
        break;
      }
      case Event::kReduced: {
        uint32_t& chunk = chunks_[{event.agent, event.tensor}];
        part.on_chunk_reduced(chunk++, actions);
        if (chunk < 2) events_.push_back(event);
        break;
      }
      case Event::kCredit:
        ASSERT_TRUE(part.on_credit(event.from, event.action.round, actions).ok());
        break;
      case Event::kFrame:
        ASSERT_TRUE(part.on_frame(event.from,
                                  header_of(plans_[{0, event.tensor}], event.action, event.tensor),
                                  7, actions)
                        .ok());
        ASSERT_EQ(actions.front().kind, Action::Kind::kRelease);
        break;
      case Event::kSent: part.on_sent(event.action, actions); break;
    }
    carry_out(event.agent, event.tensor, actions);
  }

  void carry_out(uint32_t agent, uint32_t tensor, const std::vector<Action>& actions) {
    EXPECT_LE(actions.size(), parts_.at({agent, tensor})->needs().actions_max);
    for (const Action& action : actions) {
      switch (action.kind) {
        case Action::Kind::kCredit:
          events_.push_back({Event::kCredit, action.peer, tensor, action, agent});
          break;
        case Action::Kind::kSend:
          events_.push_back({Event::kFrame, action.peer, tensor, action, agent});
          events_.push_back({Event::kSent, agent, tensor, action});
          break;
        case Action::Kind::kTakeTurn: turns_[{agent, action.total}] = {tensor, action.round}; break;
        case Action::Kind::kFinish:
          if (action.round < kRounds) events_.push_back({Event::kBegin, agent, tensor, {}});
          break;
        default: break;
      }
    }
  }

  // By their numbers, one after the other, each when chance wants it.
  void work_on_turns(uint32_t agent) {
    while (pick(random_, 0, 2) != 0 || events_.empty()) {
      const auto turn = turns_.find({agent, done_[agent].size() + 1});
      if (turn == turns_.end()) break;
      done_[agent].push_back(turn->second);
      std::vector<Action> actions;
      const uint32_t tensor = turn->second.first;
      parts_.at({agent, tensor})->on_turn_ended(actions);
      carry_out(agent, tensor, actions);
    }
    if (!events_.empty()) return;
    for (uint32_t other = 0; other < agents_ && events_.empty(); ++other)
      if (turns_.contains({other, done_[other].size() + 1})) work_on_turns(other);
  }

  const uint32_t agents_;
  sim::Random random_;
  std::map<Key, CollectivePlan> plans_;
  std::map<Key, std::unique_ptr<Collective>> parts_;
  std::map<Key, uint64_t> rounds_;
  std::map<Key, uint32_t> chunks_;
  std::map<std::pair<uint32_t, uint64_t>, std::pair<uint32_t, uint64_t>> turns_;
  std::vector<Event> events_;
  std::vector<std::vector<std::pair<uint32_t, uint64_t>>> done_;
};

TEST(NcclTurns, AreTheSameOnAllAgentsInAnyOrderOfEvents) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const auto agents = static_cast<uint32_t>(2 + seed % 4);
    Job job(agents, seed);
    job.run();
    for (uint32_t agent = 0; agent < agents; ++agent) {
      ASSERT_EQ(job.done()[agent].size(), kTensors * kRounds) << seed;
      ASSERT_EQ(job.done()[agent], job.done()[0]) << seed;
    }
  }
}

// Expect: what agent 0 would not say, and what only it may.
TEST(NcclTurns, RefuseWhatWasNotAskedFor) {
  const CollectivePlan plan = turns_plan(1, 3, nullptr);
  const Action turn{.frame = FrameKind::kGather, .round = 1, .total = 1};
  const FrameHeader header = header_of(plan, turn, 0);
  NcclTurns part(plan);
  std::vector<Action> actions;
  part.begin(1, {}, actions);
  part.on_chunk_reduced(0, actions);
  EXPECT_THAT(part.on_frame(0, header, 7, actions).message(), HasSubstr("not requested"));
  part.on_chunk_reduced(1, actions);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_THAT(part.on_frame(2, header, 7, actions).message(), HasSubstr("only agent 0"));
  for (auto member : {&FrameHeader::kind, &FrameHeader::dtype, &FrameHeader::collective}) {
    FrameHeader wrong = header;
    wrong.*member = 2;
    EXPECT_EQ(part.on_frame(0, wrong, 7, actions).code(), Code::kCorrupt);
  }
  FrameHeader wrong = header;
  wrong.step = 2;
  EXPECT_THAT(part.on_frame(0, wrong, 7, actions).message(), HasSubstr("step is 2, expected 1"));
  wrong = header;
  wrong.length = 4;
  EXPECT_THAT(part.on_frame(0, wrong, 7, actions).message(), HasSubstr("length is 4"));
  EXPECT_EQ(part.on_credit(0, 1, actions).code(), Code::kCorrupt);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_TRUE(part.on_frame(0, header, 7, actions).ok());
  EXPECT_THAT(part.on_frame(0, header, 7, actions).message(), HasSubstr("not requested"));
}

TEST(NcclTurns, RefuseCreditsOfOtherRounds) {
  NcclTurns part(turns_plan(0, 2, std::make_shared<uint64_t>(0)));
  std::vector<Action> actions;
  EXPECT_EQ(part.on_credit(1, 2, actions).code(), Code::kCorrupt);
  EXPECT_TRUE(part.on_credit(1, 1, actions).ok());
  EXPECT_EQ(part.on_credit(1, 1, actions).code(), Code::kCorrupt);
  EXPECT_EQ(part.on_credit(1, 2, actions).code(), Code::kCorrupt);  // round 1 has not begun here
}

}  // namespace
}  // namespace gradbus
