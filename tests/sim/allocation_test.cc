// A collective allocates when it is made and never again: every allocation of this program is
// counted while two agents run rounds of each kind into reserved vectors.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "worker_agent/collectives/collective.h"

namespace {

std::atomic<uint64_t> allocations{0};

void* counted(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace gradbus {
namespace {

// Two agents of one rank each, joined back to back; every action is carried out in the order it
// came.
class Pair {
 public:
  explicit Pair(CollectiveKind kind) {
    CollectivePlan plan;
    plan.kind = kind;
    plan.op = kind == CollectiveKind::kAllReduce ? ReduceOp::kSum : ReduceOp::kNone;
    plan.count = 400;
    plan.agents = 2;
    plan.agent_of_rank = {0, 1};
    for (Side& side : sides_) {
      plan.agent_index = static_cast<uint32_t>(&side - sides_);
      side.collective = make_collective(plan);
      side.actions.reserve(kActionsMax);
      side.todo.reserve(size_t{64} * plan.chunks());
    }
    plan_ = plan;
  }

  // Both rounds have ended when this returns true.
  bool run_round(uint64_t round) {
    constexpr uint64_t kLengths[] = {1600, 80};
    for (Side& side : sides_) {
      side.collective->begin(round, kLengths, side.actions);
      keep(side);
    }
    for (uint32_t chunk = 0; plan_.kind == CollectiveKind::kAllReduce && chunk < 400; ++chunk) {
      for (Side& side : sides_) {
        side.collective->on_chunk_reduced(chunk, side.actions);
        keep(side);
      }
    }
    while (act(sides_[0], sides_[1]) || act(sides_[1], sides_[0])) continue;
    return sides_[0].collective->active_round() == 0 && sides_[1].collective->active_round() == 0;
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

  bool act(Side& side, Side& other) {
    if (side.done == side.todo.size()) {
      side.todo.clear();
      side.done = 0;
      return false;
    }
    const Action action = side.todo[side.done++];
    if (action.kind == Action::Kind::kCredit) {
      ok_ = ok_ && other.collective->on_credit(action.round, other.actions).ok();
    } else if (action.kind == Action::Kind::kSend) {
      ok_ = ok_ && other.collective->on_frame(header_of(action), 0, other.actions).ok();
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
  Side sides_[2];
  bool ok_ = true;
};

class Allocation : public testing::TestWithParam<CollectiveKind> {};

TEST_P(Allocation, NoneAfterConstruction) {
  Pair pair(GetParam());
  const uint64_t before = allocations.load();
  bool ended = true;
  for (uint64_t round = 1; round <= 3; ++round) ended = ended && pair.run_round(round);
  const uint64_t after = allocations.load();
  EXPECT_TRUE(ended);
  EXPECT_EQ(after - before, 0u);
}

INSTANTIATE_TEST_SUITE_P(Collectives, Allocation,
                         testing::Values(CollectiveKind::kAllReduce, CollectiveKind::kBroadcast,
                                         CollectiveKind::kAllGather),
                         [](const auto& param) {
                           return std::string(collective_name(param.param));
                         });

}  // namespace
}  // namespace gradbus
