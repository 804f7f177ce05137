// Training steps for a StartOrder, without ranks: for its benchmark and its test.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>

#include "worker_agent/data/start_order.h"

namespace gradbus::test {

// One step of a job of two agents, as their leader sees it. The gradients of the last layers come
// first, and operations end in the order of their starts, once ten run.
inline void order_a_step(StartOrder& leader, uint32_t tensors, uint64_t round) {
  constexpr uint32_t kRunningMax = 10;
  uint32_t running[kRunningMax], begun = 0, ended = 0;  // a ring
  const auto begin = [&] {
    while (const std::optional<StartOrder::Turn> turn = leader.next()) {
      if (begun - ended == kRunningMax) throw std::logic_error("more run than the budget allows");
      running[begun++ % kRunningMax] = turn->tensor;
    }
  };
  for (uint32_t tensor = tensors; tensor-- > 0; begin()) {
    if (!leader.ready(tensor, round).ok() || !leader.on_ready(1, tensor, round).ok())
      throw std::logic_error("the round is not the next one");
    if (begun - ended == kRunningMax) leader.ended(running[ended++ % kRunningMax]);
  }
  for (; ended < begun; begin()) leader.ended(running[ended++ % kRunningMax]);
  if (ended != tensors) throw std::logic_error("a tensor did not begin");
}

}  // namespace gradbus::test
