#include "tests/sim/simulation.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "tests/sim/corrupt_frame.h"

namespace gradbus::sim {
namespace {

constexpr auto kRubbish = std::byte{0xee};

size_t rank_buffer_bytes(const CollectivePlan& plan) {
  const uint64_t blocks = reduces(plan.kind) ? 1 : block_count(plan.kind, plan.world());
  return blocks * plan.count * dtype_bytes(plan.dtype);
}

}  // namespace

Simulation::Simulation(Scenario scenario)
    : scenario_(std::move(scenario)), oracle_(scenario_), random_(scenario_.network_seed ^ 0x5eed) {
  agents_.resize(scenario_.agents);
  links_.resize(size_t{scenario_.agents} * scenario_.agents);
  for (uint32_t agent = 0; agent < scenario_.agents; ++agent) make_agent(agent);
}

void Simulation::make_agent(uint32_t index) {
  Agent& agent = agents_[index];
  for (uint32_t rank = 0; rank < scenario_.world(); ++rank)
    if (scenario_.agent_of_rank[rank] == index) agent.ranks.push_back(rank);
  agent.buffers.resize(size_t{scenario_.agents} * scenario_.buffers);
  for (uint32_t i = 0; i < agent.buffers.size(); ++i)
    link(i / scenario_.buffers, index).free_buffers.push_back(i);
  for (uint32_t tensor = 0; tensor < scenario_.tensors.size(); ++tensor)
    make_local_reduction(index, tensor);
}

void Simulation::make_local_reduction(uint32_t index, uint32_t tensor) {
  Agent& agent = agents_[index];
  LocalReduction& local_reduction = agent.local_reductions.emplace_back();
  local_reduction.plan = scenario_.tensors[tensor];
  local_reduction.plan.agent_index = index;
  local_reduction.collective = make_collective(local_reduction.plan);
  local_reduction.rank_buffers.assign(reduces(local_reduction.plan.kind) ? agent.ranks.size() : 1,
                                      Bytes(rank_buffer_bytes(local_reduction.plan), kRubbish));
  local_reduction.stash.resize(local_reduction.collective->needs().stash_slots);
  local_reduction.sends_open.resize(scenario_.agents);
  actions_.clear();
  local_reduction.collective->open(actions_);
  act(index, tensor);
  events_.push_back(
      {.agent = index, .tensor = tensor, .time = scenario_.begin_time[index][tensor], .round = 1});
}

// ---- events -----------------------------------------------------------------------------------

std::string Simulation::run() {
  while (error_.empty() && !events_.empty()) step();
  if (error_.empty()) check_end();
  return error_;
}

// Time only delays begins; when nothing else can happen, it passes at once.
void Simulation::step() {
  Event event;
  ++now_;
  if (take_event(false, event) || take_event(true, event)) {
    execute(std::move(event));
  } else {
    expect(false, "deadlock:" + blocked_rounds());
  }
}

bool Simulation::take_event(bool ignore_time, Event& event) {
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

bool Simulation::possible(const Event& event) {
  const Agent& agent = agents_[event.agent];
  switch (event.kind) {
    case EventKind::kBegin: {
      const int after = scenario_.begin_after[event.agent][event.tensor];
      return after < 0 ||
             agent.local_reductions[static_cast<size_t>(after)].finished >= event.round;
    }
    case EventKind::kTransmit:
      return link(event.agent, event.send.peer).wire_frames < scenario_.wire_frames;
    case EventKind::kArrive: return !link(event.from, event.agent).free_buffers.empty();
    default: return true;
  }
}

void Simulation::execute(Event event) {
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

void Simulation::begin(const Event& event) {
  Agent& agent = agents_[event.agent];
  LocalReduction& local_reduction = agent.local_reductions[event.tensor];
  write_inputs(agent, local_reduction, event);
  // Lengths of ranks elsewhere must be ignored: they are absurd.
  std::vector<uint64_t> lengths(scenario_.world(), std::numeric_limits<uint64_t>::max());
  for (const uint32_t rank : agent.ranks)
    lengths[rank] = oracle_.block_bytes(event.tensor, event.round, rank);
  local_reduction.collective->begin(event.round, lengths, actions_);
  expect(local_reduction.collective->active_round() == event.round,
         "begin() did not open the round");
  if (!reduces(local_reduction.plan.kind) || local_reduction.plan.count == 0) return;
  for (uint32_t chunk = 0; chunk < local_reduction.plan.chunks(); ++chunk) {
    events_.push_back({.kind = EventKind::kReduce,
                       .agent = event.agent,
                       .tensor = event.tensor,
                       .time = now_ + pick(random_, 0, 10),
                       .chunk = chunk});
  }
}

void Simulation::write_inputs(const Agent& agent, LocalReduction& local_reduction,
                              const Event& event) {
  const auto write = [&](Bytes& rank_buffer, uint64_t offset, uint32_t index) {
    const Bytes input = oracle_.input(event.tensor, event.round, index);
    std::copy(input.begin(), input.end(), rank_buffer.begin() + static_cast<ptrdiff_t>(offset));
  };
  if (reduces(local_reduction.plan.kind)) {
    for (size_t i = 0; i < agent.ranks.size(); ++i)
      write(local_reduction.rank_buffers[i], 0, agent.ranks[i]);
    return;
  }
  std::fill(local_reduction.rank_buffers[0].begin(), local_reduction.rank_buffers[0].end(),
            kRubbish);
  const uint64_t capacity = local_reduction.plan.count * dtype_bytes(local_reduction.plan.dtype);
  for (uint32_t index = 0;
       index < block_count(local_reduction.plan.kind, local_reduction.plan.world()); ++index)
    if (scenario_.agent_of_rank[source_rank(local_reduction.plan, index)] == event.agent)
      write(local_reduction.rank_buffers[0], index * capacity, index);
}

void Simulation::reduce_locally(const Event& event) {
  LocalReduction& local_reduction = agents_[event.agent].local_reductions[event.tensor];
  const ChunkRange range = local_reduction.plan.chunk_plan().range(event.chunk);
  const size_t element_bytes = dtype_bytes(local_reduction.plan.dtype);
  std::byte* sum = local_reduction.rank_buffers[0].data() + range.first * element_bytes;
  for (size_t i = 1; i < local_reduction.rank_buffers.size(); ++i)
    combine(local_reduction.plan, sum,
            local_reduction.rank_buffers[i].data() + range.first * element_bytes, sum,
            range.elements * element_bytes);
  local_reduction.collective->on_chunk_reduced(event.chunk, actions_);
}

void Simulation::transmit(Event event) {
  const LocalReduction& local_reduction = agents_[event.agent].local_reductions[event.tensor];
  ++link(event.agent, event.send.peer).wire_frames;
  events_.push_back({.kind = EventKind::kArrive,
                     .agent = event.send.peer,
                     .tensor = event.tensor,
                     .from = event.agent,
                     .header = event.header,
                     .payload = chunk_bytes(local_reduction, event.send)});
  event.kind = EventKind::kSent;
  events_.push_back(std::move(event));
}

void Simulation::report_sent(const Event& event) {
  Agent& agent = agents_[event.agent];
  LocalReduction& local_reduction = agent.local_reductions[event.tensor];
  expect(chunk_bytes(local_reduction, event.send) == event.payload, "memory changed under a send");
  --local_reduction.sends_open[event.send.peer];
  local_reduction.collective->on_sent(event.send, actions_);
}

void Simulation::arrive(const Event& event) {
  Agent& agent = agents_[event.agent];
  LocalReduction& local_reduction = agent.local_reductions[event.tensor];
  Link& over = link(event.from, event.agent);
  if (scenario_.corrupt) offer_corrupt_frame(local_reduction, event);
  const uint32_t buffer = over.free_buffers.back();
  over.free_buffers.pop_back();
  --over.wire_frames;
  agent.buffers[buffer] = event.payload;
  ++local_reduction.buffers_held;
  const Status status =
      local_reduction.collective->on_frame(event.from, event.header, buffer, actions_);
  expect(status.ok(), "good frame refused: " + status.message());
  if (!scenario_.corrupt) return;
  std::vector<Action> none;
  const Status again = local_reduction.collective->on_frame(event.from, event.header, buffer, none);
  expect(again.code() == Code::kCorrupt && none.empty(), "a frame was taken twice");
}

void Simulation::credit(const Event& event) {
  LocalReduction& local_reduction = agents_[event.agent].local_reductions[event.tensor];
  if (scenario_.corrupt) offer_corrupt_credit(local_reduction, event);
  const Status status = local_reduction.collective->on_credit(event.from, event.round, actions_);
  expect(status.ok(), "good credit refused: " + status.message());
}

void Simulation::offer_corrupt_frame(LocalReduction& local_reduction, const Event& good) {
  const auto offer = [&](uint32_t from, const FrameHeader& bad) {
    const uint64_t round = local_reduction.collective->active_round();
    const Status status = local_reduction.collective->on_frame(from, bad, 0, actions_);
    expect(status.code() == Code::kCorrupt && status.message().starts_with("GB-D601"),
           "a corrupt frame was not refused");
    expect(actions_.empty() && local_reduction.collective->active_round() == round,
           "a corrupt frame had an effect");
    ++corrupt_offered_;
  };
  for (int i = 0; i < 4; ++i)
    offer(good.from, corrupt_frame(random_, local_reduction.plan, good.header));
  // A sum of this chunk could come from another child too; blocks and results have one way.
  const bool one_way = !reduces(local_reduction.plan.kind) ||
                       (good.header.kind == static_cast<uint8_t>(FrameKind::kGather) &&
                        local_reduction.plan.algorithm != Algorithm::kRecursiveDoubling);
  const std::vector<uint32_t>& sources = local_reduction.collective->needs().sources;
  for (uint32_t from = 0; from <= scenario_.agents; ++from) {
    const bool foreign = std::find(sources.begin(), sources.end(), from) == sources.end();
    if (from != good.from && (one_way || foreign)) offer(from, good.header);
  }
}

void Simulation::offer_corrupt_credit(LocalReduction& local_reduction, const Event& good) {
  const auto offer = [&](uint32_t from, uint64_t round) {
    const Status status = local_reduction.collective->on_credit(from, round, actions_);
    expect(status.code() == Code::kCorrupt && actions_.empty(), "a corrupt credit was taken");
    ++corrupt_offered_;
  };
  for (const uint64_t bad : {good.round - 1, good.round + 1, good.round + 2, ~uint64_t{0}})
    offer(good.from, bad);
  offer(good.agent, good.round);
  offer(scenario_.agents, good.round);
}

// ---- memory and messages ----------------------------------------------------------------------

uint64_t Simulation::chunk_offset(const CollectivePlan& plan, const Action& action) const {
  const uint64_t element_bytes = dtype_bytes(plan.dtype);
  if (reduces(plan.kind)) return plan.chunk_plan().range(action.chunk).first * element_bytes;
  return (action.source * plan.count + action.chunk * plan.chunk_elements) * element_bytes;
}

Bytes Simulation::chunk_bytes(const LocalReduction& local_reduction, const Action& action) const {
  const auto first = local_reduction.rank_buffers[0].begin() +
                     static_cast<ptrdiff_t>(chunk_offset(local_reduction.plan, action));
  return Bytes(first, first + static_cast<ptrdiff_t>(action.bytes));
}

std::string Simulation::blocked_rounds() const {
  std::string text;
  for (uint32_t agent = 0; agent < agents_.size(); ++agent) {
    for (uint32_t tensor = 0; tensor < agents_[agent].local_reductions.size(); ++tensor) {
      const LocalReduction& local_reduction = agents_[agent].local_reductions[tensor];
      if (local_reduction.finished == scenario_.rounds) continue;
      text += " agent " + std::to_string(agent) + " tensor " + std::to_string(tensor) + " (" +
              std::string(collective_name(local_reduction.plan.kind)) + ", " +
              std::string(algorithm_name(local_reduction.plan.algorithm)) + ") round " +
              std::to_string(local_reduction.finished + 1) +
              (local_reduction.collective->active_round() == 0 ? " not begun;" : " active;");
    }
  }
  return text;
}

void Simulation::expect(bool condition, const std::string& what) {
  if (!condition && error_.empty()) error_ = "after " + std::to_string(now_) + " events: " + what;
}

}  // namespace gradbus::sim
