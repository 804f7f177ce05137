// The order in which rounds with a byte budget begin: random jobs, whose frames arrive in any
// order.
#include "worker_agent/data/start_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/bench/start_order_steps.h"
#include "tests/count_allocations.h"

namespace gradbus {
namespace {

using testing::ElementsAre;
using Turn = StartOrder::Turn;

std::vector<uint32_t> begin_all(StartOrder& order) {
  std::vector<uint32_t> tensors;
  while (const std::optional<Turn> turn = order.next()) tensors.push_back(turn->tensor);
  return tensors;
}

// A job of one agent: the leader alone.
class OneAgent : public testing::Test {
 protected:
  void add(uint32_t tensor, uint64_t bytes, uint64_t budget, uint32_t priority = 0) {
    order_.add(tensor, {bytes, budget, priority});
  }
  void ready(uint32_t tensor) { ASSERT_TRUE(order_.ready(tensor, ++rounds_[tensor]).ok()); }
  StartOrder order_{0, 1};
  std::map<uint32_t, uint64_t> rounds_;
};

TEST_F(OneAgent, RoundsBeginAsFarAsTheBudgetAllows) {
  for (uint32_t tensor = 1; tensor <= 4; ++tensor) add(tensor, 40, 100);
  for (uint32_t tensor = 1; tensor <= 4; ++tensor) ready(tensor);
  EXPECT_THAT(begin_all(order_), ElementsAre(1, 2));
  EXPECT_EQ(order_.bytes_in_flight(), 80u);
  order_.ended(2);
  EXPECT_THAT(begin_all(order_), ElementsAre(3));
  order_.ended(1);
  order_.ended(3);
  EXPECT_THAT(begin_all(order_), ElementsAre(4));
  EXPECT_EQ(order_.bytes_in_flight_max(), 80u);
  EXPECT_EQ(order_.delayed(), 2u) << "3 and 4 have waited";
}

TEST_F(OneAgent, TheMostUrgentRoundIsNext) {
  add(1, 100, 100, 5);
  add(2, 10, 100, 3);
  add(3, 10, 100, 0);
  ready(1);
  EXPECT_THAT(begin_all(order_), ElementsAre(1));
  ready(2);
  ready(3);
  EXPECT_THAT(begin_all(order_), ElementsAre());
  order_.ended(1);
  EXPECT_THAT(begin_all(order_), ElementsAre(3, 2));
}

TEST_F(OneAgent, ARoundLargerThanTheBudgetRunsAlone) {
  add(1, 60, 100);
  add(2, 500, 100);
  add(3, 1, 100);
  ready(1);
  EXPECT_THAT(begin_all(order_), ElementsAre(1));
  ready(2);
  ready(3);
  EXPECT_THAT(begin_all(order_), ElementsAre()) << "3 would fit, but 2 is first";
  order_.ended(1);
  EXPECT_THAT(begin_all(order_), ElementsAre(2));
  order_.ended(2);
  EXPECT_THAT(begin_all(order_), ElementsAre(3));
}

TEST_F(OneAgent, UrgentRoundsDoNotStopAnotherForEver) {
  add(1, 100, 100, 0);
  add(2, 100, 100, 1);
  ready(2);
  ready(1);
  uint64_t overtaken = 0;
  for (; begin_all(order_) == std::vector<uint32_t>{1}; ++overtaken) {
    ASSERT_LT(overtaken, 10'000u);
    order_.ended(1);
    ready(1);
  }
  EXPECT_EQ(overtaken, SendQueue::kFramesPerPriority - 1);
}

TEST(StartOrder, ARoundThatOneNodeHasNotPostedHoldsNothing) {
  StartOrder leader(0, 2);
  for (const uint32_t tensor : {1, 2}) leader.add(tensor, {100, 100, 0});
  ASSERT_TRUE(leader.ready(1, 1).ok());
  ASSERT_TRUE(leader.ready(2, 1).ok());
  EXPECT_THAT(begin_all(leader), ElementsAre());
  ASSERT_TRUE(leader.on_ready(1, 2, 1).ok());
  EXPECT_THAT(begin_all(leader), ElementsAre(2));
}

TEST(StartOrder, TurnsBeginInTheirOrderAlsoWhenTheyComeInAnother) {
  StartOrder order(1, 2);
  for (const uint32_t tensor : {1, 2}) {
    order.add(tensor, {10, 100, 0});
    ASSERT_TRUE(order.ready(tensor, 1).ok());
  }
  ASSERT_TRUE(order.on_turn({2, 1, 2}).ok());
  EXPECT_THAT(begin_all(order), ElementsAre());
  ASSERT_TRUE(order.on_turn({1, 1, 1}).ok());
  EXPECT_THAT(begin_all(order), ElementsAre(1, 2));
}

TEST(StartOrder, FramesThatNoAgentSendsAreRefused) {
  StartOrder leader(0, 3), other(1, 3);
  for (StartOrder* order : {&leader, &other}) order->add(1, {10, 100, 0});
  const auto refused = [](const Status& status) {
    return status.message().find("GB-D601") != std::string::npos;
  };
  EXPECT_TRUE(refused(leader.on_ready(3, 1, 1))) << "no such agent";
  EXPECT_TRUE(refused(leader.on_turn({1, 1, 1}))) << "the leader gives turns";
  ASSERT_TRUE(leader.on_ready(1, 1, 1).ok());
  EXPECT_TRUE(refused(leader.on_ready(2, 1, 2))) << "another round";
  ASSERT_TRUE(leader.on_ready(2, 1, 1).ok());
  EXPECT_TRUE(refused(leader.on_ready(2, 1, 1))) << "twice, and the leader itself is not ready";
  EXPECT_TRUE(refused(other.on_turn({1, 1, 1}))) << "not ready";
  EXPECT_TRUE(refused(other.on_ready(2, 1, 1))) << "not the leader";
  ASSERT_TRUE(other.ready(1, 1).ok());
  EXPECT_TRUE(refused(other.on_turn({1, 2, 1}))) << "another round";
  EXPECT_TRUE(refused(other.on_turn({1, 1, 0}))) << "no turn";
  ASSERT_TRUE(other.on_turn({1, 1, 1}).ok());
  EXPECT_TRUE(refused(other.on_turn({1, 1, 2}))) << "twice";
}

// ---- random jobs

// Agents, frames between them that arrive in any order, and tensors that end on an agent some time
// after all agents have begun them.
class RandomJob {
 public:
  explicit RandomJob(uint64_t seed) : random_(seed), agents_(2 + below(4)), rounds_(1 + below(6)) {
    const uint64_t budget = 1 + below(300);
    for (uint32_t agent = 0; agent < agents_; ++agent) orders_.emplace_back(agent, agents_);
    tensors_.resize(1 + below(30));
    for (uint32_t id = 0; id < tensors_.size(); ++id) {
      tensors_[id] = {below(120), below(8) == 0 ? 1 + below(300) : budget,
                      static_cast<uint32_t>(below(9))};
      for (StartOrder& order : orders_) order.add(id, tensors_[id]);
    }
    posted_.assign(agents_, std::vector<uint64_t>(tensors_.size()));
    begun_ = ended_ = posted_;
    begun_order_.resize(agents_);
  }

  void run() {
    for (uint64_t idle = 0; !is_over(); ++idle) {
      ASSERT_LT(idle, 2'000'000u) << "a round was never begun";
      switch (below(4)) {
        case 0: post(); break;
        case 1: deliver(); break;
        case 2: ASSERT_NO_FATAL_FAILURE(begin(static_cast<uint32_t>(below(agents_)))); break;
        default: end(); break;
      }
    }
    for (const auto& order : begun_order_) EXPECT_EQ(order, begun_order_[0]);
    for (const StartOrder& order : orders_) EXPECT_EQ(order.bytes_in_flight(), 0u);
  }

 private:
  struct Frame {
    uint32_t from, to;
    Turn turn;
  };
  uint64_t below(uint64_t bound) { return random_() % bound; }
  bool is_over() const {
    for (const auto& of_agent : ended_)
      for (const uint64_t round : of_agent)
        if (round < rounds_) return false;
    return true;
  }
  // In any order. Agents with odd numbers post a tensor only after the result of another one in the
  // same round, so it must not wait for the posts of agents with even numbers.
  void post() {
    const auto agent = static_cast<uint32_t>(below(agents_));
    const auto id = static_cast<uint32_t>(below(tensors_.size()));
    uint64_t& posted = posted_[agent][id];
    if (posted > ended_[agent][id] || posted == rounds_) return;
    if (agent % 2 == 1 && id > 0 && ended_[agent][(agent + 7 * id) % id] <= posted) return;
    ASSERT_TRUE(orders_[agent].ready(id, ++posted).ok());
    if (agent != 0) frames_.push_back({agent, 0, {id, posted, 0}});
  }
  void deliver() {
    if (frames_.empty()) return;
    const size_t at = below(frames_.size());
    const Frame frame = frames_[at];
    frames_.erase(frames_.begin() + static_cast<ptrdiff_t>(at));
    StartOrder& order = orders_[frame.to];
    const Status status = frame.to == 0
                              ? order.on_ready(frame.from, frame.turn.tensor, frame.turn.round)
                              : order.on_turn(frame.turn);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  void begin(uint32_t agent) {
    while (const std::optional<Turn> turn = orders_[agent].next()) {
      ASSERT_EQ(turn->round, ++begun_[agent][turn->tensor]) << "each round begins once";
      begun_order_[agent].emplace_back(turn->tensor, turn->round);
      check_budget(agent, turn->tensor);
      for (uint32_t to = 1; agent == 0 && to < agents_; ++to) frames_.push_back({0, to, *turn});
    }
  }
  void check_budget(uint32_t agent, uint32_t latest) {
    uint64_t bytes = 0, running = 0;
    for (uint32_t id = 0; id < tensors_.size(); ++id)
      if (begun_[agent][id] > ended_[agent][id]) bytes += tensors_[id].bytes, ++running;
    ASSERT_TRUE(running == 1 || bytes <= tensors_[latest].budget_bytes) << bytes;
    ASSERT_EQ(bytes, orders_[agent].bytes_in_flight());
  }
  void end() {
    const auto agent = static_cast<uint32_t>(below(agents_));
    const auto id = static_cast<uint32_t>(below(tensors_.size()));
    const uint64_t round = ended_[agent][id] + 1;
    for (const auto& of_agent : begun_)
      if (of_agent[id] < round) return;
    ++ended_[agent][id];
    orders_[agent].ended(id);
  }

  std::mt19937_64 random_;
  const uint32_t agents_;
  const uint64_t rounds_;
  std::vector<StartOrder> orders_;
  std::vector<StartOrder::Limits> tensors_;
  std::vector<Frame> frames_;
  std::vector<std::vector<uint64_t>> posted_, begun_, ended_;  // rounds, by agent and tensor
  std::vector<std::vector<std::pair<uint32_t, uint64_t>>> begun_order_;  // by agent
};

TEST(StartOrder, RandomJobsEndAndNeverExceedTheBudget) {
  for (uint64_t seed = 1; seed <= 300 && !testing::Test::HasFatalFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomJob(seed).run();
  }
}

// ---- what a step costs: tests/bench/start_order_bench.cc measures it

TEST(StartOrder, NothingAllocatesAfterAdd) {
  constexpr uint32_t kTensors = 200;
  StartOrder leader(0, 2);
  for (uint32_t tensor = 0; tensor < kTensors; ++tensor) leader.add(tensor, {100, 1000, tensor});
  const uint64_t before = test::allocations();
  for (uint64_t round = 1; round <= 50; ++round) test::order_a_step(leader, kTensors, round);
  EXPECT_EQ(test::allocations(), before);
  EXPECT_EQ(leader.bytes_in_flight(), 0u) << "all have begun and ended";
  EXPECT_EQ(leader.bytes_in_flight_max(), 1000u);
}

}  // namespace
}  // namespace gradbus
