// Passes staleness statistics from the engine to the conductor. For each tensor whose parameters
// are on shards, they count the steps of other nodes between the parameters that a node had and its
// own step. Any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>

namespace gradbus {

struct Staleness {
  uint64_t rounds = 0;  // that made a step
  uint64_t steps = 0;   // of other nodes, total over these rounds
  uint32_t most = 0;    // maximum in one round
};

class StalenessBoard {
 public:
  // Called before its first round, so that post() allocates nothing.
  void add(uint32_t tensor) {
    const std::lock_guard lock(lock_);
    noted_[tensor];
  }
  void remove(uint32_t tensor) {
    const std::lock_guard lock(lock_);
    noted_.erase(tensor);
  }
  void post(uint32_t tensor, uint32_t steps) {
    const std::lock_guard lock(lock_);
    Staleness& of = noted_[tensor];
    ++of.rounds;
    of.steps += steps;
    of.most = std::max(of.most, steps);
  }
  // Statistics since the last call by tensor, of tensors that had a round.
  std::map<uint32_t, Staleness> take() {
    std::map<uint32_t, Staleness> taken;
    const std::lock_guard lock(lock_);
    for (auto& [tensor, of] : noted_) {
      if (of.rounds > 0) taken.emplace(tensor, of);
      of = {};
    }
    return taken;
  }

 private:
  std::mutex lock_;
  std::map<uint32_t, Staleness> noted_;
};

}  // namespace gradbus
