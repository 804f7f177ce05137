// A collective allocates when it is made and never again: every allocation of this program is
// counted while agents run rounds of each kind by each algorithm into reserved vectors.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "data_plane/collectives/collective.h"
#include "tests/count_allocations.h"
#include "tests/sim/scenario.h"

namespace gradbus {
namespace {

constexpr uint32_t kAgents = 5;

// Five agents of one rank each, joined back to back; every action is carried out in the order it
// came.
class Ring {
 public:
  explicit Ring(sim::Way way) {
    plan_.kind = way.kind;
    plan_.algorithm = way.algorithm;
    plan_.op = reduces(way.kind) ? ReduceOp::kSum : ReduceOp::kNone;
    plan_.count = 400;
    plan_.chunk_elements = way.algorithm == Algorithm::kRecursiveDoubling ? 400 : 1;
    plan_.agents = kAgents;
    plan_.agent_of_rank = {0, 1, 2, 3, 4};
    for (plan_.agent_index = 0; plan_.agent_index < kAgents; ++plan_.agent_index) {
      Side& side = sides_[plan_.agent_index];
      side.collective = make_collective(plan_);
      side.actions.reserve(side.collective->needs().actions_max);
      side.todo.reserve(size_t{64} * plan_.chunks() * kAgents * kAgents);
    }
    for (Side& side : sides_) {
      side.collective->open(side.actions);
      keep(side);
    }
    while (act_all()) continue;
  }

  // All rounds have ended when this returns true.
  bool run_round(uint64_t round) {
    constexpr uint64_t kLengths[kAgents] = {1600, 80, 0, 4, 44};
    for (Side& side : sides_) {
      side.collective->begin(round, kLengths, side.actions);
      keep(side);
    }
    for (uint32_t chunk = 0; reduces(plan_.kind) && chunk < plan_.chunks(); ++chunk) {
      for (Side& side : sides_) {
        side.collective->on_chunk_reduced(chunk, side.actions);
        keep(side);
      }
    }
    while (act_all()) continue;
    bool ended = ok_;
    for (const Side& side : sides_) ended = ended && side.collective->active_round() == 0;
    return ended;
  }

 private:
  struct Side {
    std::unique_ptr<Collective> collective;
    std::vector<Action> actions;
    std::vector<Action> todo;
    size_t done = 0;
  };

  void keep(Side& side) {
    side.todo.insert(side.todo.end(), side.actions.begin(), side.actions.end());
    side.actions.clear();
  }

  bool act_all() {
    bool acted = false;
    for (uint32_t agent = 0; agent < kAgents; ++agent) acted |= act(agent);
    return acted && ok_;
  }

  bool act(uint32_t agent) {
    Side& side = sides_[agent];
    if (side.done == side.todo.size()) {
      side.todo.clear();
      side.done = 0;
      return false;
    }
    const Action action = side.todo[side.done++];
    Side& other = sides_[action.peer];
    if (action.kind == Action::Kind::kCredit) {
      ok_ = ok_ && other.collective->on_credit(agent, action.round, other.actions).ok();
    } else if (action.kind == Action::Kind::kSend) {
      ok_ = ok_ && other.collective->on_frame(agent, header_of(action), 0, other.actions).ok();
      keep(other);
      side.collective->on_sent(action, side.actions);
    }
    keep(side);
    keep(other);
    return ok_;
  }

  FrameHeader header_of(const Action& send) const {
    FrameHeader header;
    header.kind = static_cast<uint8_t>(send.frame);
    header.dtype = static_cast<uint8_t>(plan_.dtype);
    header.op = static_cast<uint8_t>(plan_.op);
    header.collective = static_cast<uint8_t>(plan_.kind);
    header.source = send.source;
    header.step = send.round;
    header.chunk = send.chunk;
    header.length = static_cast<uint32_t>(send.bytes);
    header.total = send.total;
    return header;
  }

  CollectivePlan plan_;
  Side sides_[kAgents];
  bool ok_ = true;
};

class Allocation : public testing::TestWithParam<sim::Way> {};

TEST_P(Allocation, NoneAfterConstruction) {
  Ring ring(GetParam());
  const uint64_t before = test::allocations();
  bool ended = true;
  for (uint64_t round = 1; round <= 3; ++round) ended = ended && ring.run_round(round);
  const uint64_t after = test::allocations();
  EXPECT_TRUE(ended);
  EXPECT_EQ(after - before, 0u);
}

INSTANTIATE_TEST_SUITE_P(Collectives, Allocation, testing::ValuesIn(sim::all_ways()),
                         [](const auto& param) {
                           return std::string(collective_name(param.param.kind)) + "_" +
                                  std::string(algorithm_name(param.param.algorithm));
                         });

}  // namespace
}  // namespace gradbus
