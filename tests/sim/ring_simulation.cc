#include "tests/sim/ring_simulation.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "tests/sim/corrupt_frame.h"

namespace gradbus::sim {
namespace {

uint32_t areas_of(const CollectivePlan& plan, size_t local_ranks) {
  return plan.kind == CollectiveKind::kAllReduce ? static_cast<uint32_t>(local_ranks) : 1;
}

size_t area_bytes(const CollectivePlan& plan) {
  const size_t blocks = plan.kind == CollectiveKind::kAllGather ? plan.agent_of_rank.size() : 1;
  return blocks * plan.count * dtype_bytes(plan.dtype);
}

}  // namespace

RingSimulation::RingSimulation(Scenario scenario)
    : scenario_(std::move(scenario)), oracle_(scenario_), random_(scenario_.seed ^ 0x5eed) {
  actions_.reserve(kActionsMax);
  agents_.resize(scenario_.agents);
  for (uint32_t agent = 0; agent < scenario_.agents; ++agent) make_agent(agent);
}

void RingSimulation::make_agent(uint32_t index) {
  Agent& agent = agents_[index];
  for (uint32_t rank = 0; rank < scenario_.world(); ++rank) {
    if (scenario_.agent_of_rank[rank] == index) agent.ranks.push_back(rank);
  }
  agent.buffers.resize(scenario_.buffers);
  for (uint32_t i = 0; i < scenario_.buffers; ++i) agent.free_buffers.push_back(i);
  for (uint32_t tensor = 0; tensor < scenario_.tensors.size(); ++tensor) {
    Cell& cell = agent.cells.emplace_back();
    cell.plan = scenario_.tensors[tensor];
    cell.plan.agent_index = index;
    cell.collective = make_collective(cell.plan);
    cell.areas.assign(areas_of(cell.plan, agent.ranks.size()), Bytes(area_bytes(cell.plan)));
    events_.push_back({.agent = index,
                       .tensor = tensor,
                       .time = scenario_.begin_time[index][tensor],
                       .round = 1});
  }
}

// ---- events -----------------------------------------------------------------------------------

std::string RingSimulation::run() {
  while (error_.empty() && !events_.empty()) step();
  if (error_.empty()) check_end();
  return error_;
}

// Time only delays begins; when nothing else can happen, it passes at once.
void RingSimulation::step() {
  Event event;
  ++now_;
  if (take_event(false, event) || take_event(true, event)) {
    execute(std::move(event));
  } else {
    expect(false, "deadlock:" + blocked_rounds());
  }
}

bool RingSimulation::take_event(bool ignore_time, Event& event) {
  const size_t first = pick(random_, 0, events_.size() - 1);
  for (size_t i = 0; i < events_.size(); ++i) {
    Event& candidate = events_[(first + i) % events_.size()];
    if ((!ignore_time && candidate.time > now_) || !possible(candidate)) continue;
    std::swap(candidate, events_.back());
    event = std::move(events_.back());
    events_.pop_back();
    return true;
  }
  return false;
}

bool RingSimulation::possible(const Event& event) const {
  const Agent& agent = agents_[event.agent];
  switch (event.kind) {
    case EventKind::kBegin: {
      const int after = scenario_.begin_after[event.agent][event.tensor];
      return after < 0 || agent.cells[static_cast<size_t>(after)].finished >= event.round;
    }
    case EventKind::kTransmit:
      return agents_[(event.agent + 1) % scenario_.agents].wire_frames < scenario_.wire_frames;
    case EventKind::kArrive: return !agent.free_buffers.empty();
    default: return true;
  }
}

void RingSimulation::execute(Event event) {
  actions_.clear();
  const uint32_t agent = event.agent;
  const uint32_t tensor = event.tensor;
  switch (event.kind) {
    case EventKind::kBegin: begin(event); break;
    case EventKind::kReduce: reduce_locally(event); break;
    case EventKind::kTransmit: return transmit(std::move(event));
    case EventKind::kSent: report_sent(event); break;
    case EventKind::kArrive: arrive(event); break;
    case EventKind::kCredit: credit(event); break;
  }
  if (error_.empty()) act(agent, tensor);
}

void RingSimulation::begin(const Event& event) {
  Agent& agent = agents_[event.agent];
  Cell& cell = agent.cells[event.tensor];
  const bool gathers = cell.plan.kind == CollectiveKind::kAllGather;
  const uint64_t capacity = cell.plan.count * dtype_bytes(cell.plan.dtype);
  // Lengths of ranks elsewhere must be ignored: they are absurd.
  std::vector<uint64_t> lengths(scenario_.world(), std::numeric_limits<uint64_t>::max());
  for (size_t i = 0; i < agent.ranks.size(); ++i) {
    const uint32_t rank = agent.ranks[i];
    lengths[rank] = oracle_.block_bytes(event.tensor, event.round, rank);
    if (cell.plan.kind == CollectiveKind::kBroadcast && rank != cell.plan.root) continue;
    const Bytes input = oracle_.input(event.tensor, event.round, rank);
    Bytes& area = cell.areas[cell.areas.size() == 1 ? 0 : i];
    std::copy(input.begin(), input.end(),
              area.begin() + static_cast<long>(gathers ? rank * capacity : 0));
  }
  cell.collective->begin(event.round, lengths, actions_);
  expect(cell.collective->active_round() == event.round, "begin() did not open the round");
  if (cell.plan.kind != CollectiveKind::kAllReduce || cell.plan.count == 0) return;
  for (uint32_t chunk = 0; chunk < cell.plan.chunks(); ++chunk) {
    events_.push_back({.kind = EventKind::kReduce,
                       .agent = event.agent,
                       .tensor = event.tensor,
                       .time = now_ + pick(random_, 0, 10),
                       .chunk = chunk});
  }
}

void RingSimulation::reduce_locally(const Event& event) {
  Cell& cell = agents_[event.agent].cells[event.tensor];
  const size_t element_bytes = dtype_bytes(cell.plan.dtype);
  const size_t offset = event.chunk * cell.plan.chunk_elements * element_bytes;
  const size_t bytes =
      std::min(cell.areas[0].size() - offset, cell.plan.chunk_elements * element_bytes);
  for (size_t i = 1; i < cell.areas.size(); ++i) {
    add(cell.plan.dtype, cell.areas[i].data() + offset, cell.areas[0].data() + offset, bytes);
  }
  cell.collective->on_chunk_reduced(event.chunk, actions_);
}

void RingSimulation::transmit(Event event) {
  const uint32_t successor = (event.agent + 1) % scenario_.agents;
  const Cell& cell = agents_[event.agent].cells[event.tensor];
  ++agents_[successor].wire_frames;
  events_.push_back({.kind = EventKind::kArrive,
                     .agent = successor,
                     .tensor = event.tensor,
                     .header = event.header,
                     .payload = chunk_bytes(cell, event.send)});
  event.kind = EventKind::kSent;
  events_.push_back(std::move(event));
}

void RingSimulation::report_sent(const Event& event) {
  Agent& agent = agents_[event.agent];
  Cell& cell = agent.cells[event.tensor];
  expect(chunk_bytes(cell, event.send) == event.payload, "memory changed under a send");
  --cell.sends_open;
  cell.collective->on_sent(event.send, actions_);
}

void RingSimulation::arrive(const Event& event) {
  Agent& agent = agents_[event.agent];
  Cell& cell = agent.cells[event.tensor];
  const uint32_t buffer = agent.free_buffers.back();
  if (scenario_.corrupt) offer_corrupt_frame(cell, event.header);
  agent.free_buffers.pop_back();
  --agent.wire_frames;
  agent.buffers[buffer] = event.payload;
  ++cell.buffers_held;
  const Status status = cell.collective->on_frame(event.header, buffer, actions_);
  expect(status.ok(), "good frame refused: " + status.message());
  if (!scenario_.corrupt) return;
  std::vector<Action> none;
  const Status again = cell.collective->on_frame(event.header, buffer, none);
  expect(again.code() == Code::kCorrupt && none.empty(), "a frame was taken twice");
}

void RingSimulation::credit(const Event& event) {
  Cell& cell = agents_[event.agent].cells[event.tensor];
  if (scenario_.corrupt) offer_corrupt_credit(cell, event.round);
  const Status status = cell.collective->on_credit(event.round, actions_);
  expect(status.ok(), "good credit refused: " + status.message());
}

void RingSimulation::offer_corrupt_frame(Cell& cell, const FrameHeader& good) {
  for (int i = 0; i < 4; ++i, ++corrupt_offered_) {
    const FrameHeader bad = corrupt_frame(random_, cell.plan, good);
    const uint64_t round = cell.collective->active_round();
    const Status status = cell.collective->on_frame(bad, 0, actions_);
    expect(status.code() == Code::kCorrupt && status.message().starts_with("GB-D601"),
           "a corrupt frame was not refused");
    expect(actions_.empty() && cell.collective->active_round() == round,
           "a corrupt frame had an effect");
  }
}

void RingSimulation::offer_corrupt_credit(Cell& cell, uint64_t good) {
  for (const uint64_t bad : {good - 1, good + 1, good + 2, ~uint64_t{0}}) {
    const Status status = cell.collective->on_credit(bad, actions_);
    expect(status.code() == Code::kCorrupt && actions_.empty(), "a corrupt credit was taken");
    ++corrupt_offered_;
  }
}

// ---- memory and messages ----------------------------------------------------------------------

uint64_t RingSimulation::chunk_offset(const CollectivePlan& plan, const Action& action) const {
  const uint64_t element_bytes = dtype_bytes(plan.dtype);
  return (action.source * plan.count + action.chunk * plan.chunk_elements) * element_bytes;
}

Bytes RingSimulation::chunk_bytes(const Cell& cell, const Action& action) const {
  const auto first = cell.areas[0].begin() + static_cast<long>(chunk_offset(cell.plan, action));
  return Bytes(first, first + static_cast<long>(action.bytes));
}

std::string RingSimulation::blocked_rounds() const {
  std::string text;
  for (uint32_t agent = 0; agent < agents_.size(); ++agent) {
    for (uint32_t tensor = 0; tensor < agents_[agent].cells.size(); ++tensor) {
      const Cell& cell = agents_[agent].cells[tensor];
      if (cell.finished == scenario_.rounds) continue;
      text += " agent " + std::to_string(agent) + " tensor " + std::to_string(tensor) + " round " +
              std::to_string(cell.finished + 1) +
              (cell.collective->active_round() == 0 ? " not begun;" : " active;");
    }
  }
  return text;
}

void RingSimulation::expect(bool condition, const std::string& what) {
  if (!condition && error_.empty()) error_ = "after " + std::to_string(now_) + " events: " + what;
}

}  // namespace gradbus::sim
