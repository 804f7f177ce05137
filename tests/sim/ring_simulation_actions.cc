// The engine's half of the simulation: what each action does to memory, buffers and the network,
// and what must hold when a round finishes.

#include <algorithm>

#include "tests/sim/ring_simulation.h"

namespace gradbus::sim {
namespace {

FrameHeader frame_header(const CollectivePlan& plan, uint32_t tensor, const Action& send) {
  FrameHeader header;
  header.kind = static_cast<uint8_t>(send.frame);
  header.dtype = static_cast<uint8_t>(plan.dtype);
  header.op = static_cast<uint8_t>(plan.op);
  header.collective = static_cast<uint8_t>(plan.kind);
  header.source = send.source;
  header.tensor = tensor;
  header.step = send.round;
  header.chunk = send.chunk;
  header.length = static_cast<uint32_t>(send.bytes);
  header.total = send.total;
  return header;
}

}  // namespace

void RingSimulation::act(uint32_t agent, uint32_t tensor) {
  expect(actions_.size() <= kActionsMax, "too many actions in one event");
  for (const Action& action : actions_) act(agent, tensor, action);
}

void RingSimulation::act(uint32_t agent, uint32_t tensor, const Action& action) {
  Cell& cell = agents_[agent].cells[tensor];
  expect(action.round == cell.finished + 1, "an action of another round");
  switch (action.kind) {
    case Action::Kind::kCredit:
      events_.push_back({.kind = EventKind::kCredit,
                         .agent = (agent + scenario_.agents - 1) % scenario_.agents,
                         .tensor = tensor,
                         .round = action.round});
      break;
    case Action::Kind::kSend: post_send(agent, tensor, action); break;
    case Action::Kind::kAccumulate: {
      const Bytes& payload = agents_[agent].buffers[action.buffer];
      std::byte* target = cell.areas[0].data() + chunk_offset(cell.plan, action);
      add(cell.plan.dtype, payload.data(), target, action.bytes);
      break;
    }
    case Action::Kind::kFinalize: finalize(cell, action); break;
    case Action::Kind::kDeliver:
      deliver(cell, action, agents_[agent].buffers[action.buffer]);
      break;
    case Action::Kind::kRelease:
      --cell.buffers_held;
      agents_[agent].buffers[action.buffer].clear();  // a later use of it cannot go unnoticed
      agents_[agent].free_buffers.push_back(action.buffer);
      break;
    case Action::Kind::kFinish: finish(agent, tensor, action); break;
  }
}

void RingSimulation::post_send(uint32_t agent, uint32_t tensor, const Action& action) {
  Cell& cell = agents_[agent].cells[tensor];
  ++cell.sends_open;
  ++cell.frames_sent;
  ++agents_[agent].frames_sent;
  expect(cell.sends_open <= kSendsInFlightMax, "too many sends in flight");
  events_.push_back({.kind = EventKind::kTransmit,
                     .agent = agent,
                     .tensor = tensor,
                     .send = action,
                     .header = frame_header(cell.plan, tensor, action),
                     .payload = chunk_bytes(cell, action)});
}

void RingSimulation::finalize(Cell& cell, const Action& action) {
  const size_t offset = chunk_offset(cell.plan, action);
  std::byte* sum = cell.areas[0].data() + offset;
  if (cell.plan.op == ReduceOp::kAverage) {
    divide(cell.plan.dtype, sum, action.bytes, scenario_.world());
  }
  for (size_t i = 1; i < cell.areas.size(); ++i) {
    std::copy_n(sum, action.bytes, cell.areas[i].data() + offset);
  }
}

void RingSimulation::deliver(Cell& cell, const Action& action, const Bytes& payload) {
  expect(payload.size() == action.bytes, "a payload of another length is delivered");
  if (payload.size() != action.bytes) return;
  for (Bytes& area : cell.areas) {
    std::copy(payload.begin(), payload.end(),
              area.begin() + static_cast<long>(chunk_offset(cell.plan, action)));
  }
}

void RingSimulation::finish(uint32_t agent, uint32_t tensor, const Action& action) {
  Cell& cell = agents_[agent].cells[tensor];
  expect(&action == &actions_.back(), "kFinish is not the last action");
  expect(cell.collective->active_round() == 0, "a finished round is still active");
  expect(cell.sends_open == 0, "finished with a send outstanding");
  expect(cell.buffers_held == 0, "finished with a buffer held");
  expect(cell.frames_sent == oracle_.frames_sent(tensor, action.round, agent),
         "sent " + std::to_string(cell.frames_sent) + " frames");
  check_result(agent, tensor, action.round);
  cell.frames_sent = 0;
  ++cell.finished;
  if (cell.finished == scenario_.rounds) return;
  events_.push_back({.agent = agent,
                     .tensor = tensor,
                     .time = now_ + pick(random_, 0, 30),
                     .round = cell.finished + 1});
}

void RingSimulation::check_result(uint32_t agent, uint32_t tensor, uint64_t round) {
  const Cell& cell = agents_[agent].cells[tensor];
  for (const Bytes& area : cell.areas) {
    const std::string wrong = oracle_.check(tensor, round, area);
    expect(wrong.empty(), "agent " + std::to_string(agent) + ": " + wrong);
    if (cell.plan.kind != CollectiveKind::kAllReduce) continue;
    const auto [first, is_first] = first_result_.try_emplace({tensor, round}, area);
    expect(first->second == area, "two ranks have different bits");
  }
}

void RingSimulation::check_end() {
  for (const Agent& agent : agents_) {
    expect(agent.free_buffers.size() == scenario_.buffers, "a receive buffer is lost");
    for (const Cell& cell : agent.cells) {
      expect(cell.finished == scenario_.rounds, "hung:" + blocked_rounds());
    }
  }
}

}  // namespace gradbus::sim
