// The engine's half of the simulation: what each action does to memory, buffers and the network,
// and what must hold when a round finishes.

#include <algorithm>

#include "tests/sim/simulation.h"

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

// Frames of the next round may be put aside.
bool belongs(const Action& action, uint64_t finished) {
  const bool aside = action.kind == Action::Kind::kStash || action.kind == Action::Kind::kRelease;
  return action.round == finished + 1 || (aside && action.round == finished + 2);
}

}  // namespace

void Simulation::act(uint32_t agent, uint32_t tensor) {
  expect(actions_.size() <= agents_[agent].local_reductions[tensor].collective->needs().actions_max,
         "too many actions in one event");
  for (const Action& action : actions_) act(agent, tensor, action);
}

void Simulation::act(uint32_t agent, uint32_t tensor, const Action& action) {
  LocalReduction& local_reduction = agents_[agent].local_reductions[tensor];
  const auto payload = [&]() -> const Bytes& {
    return action.stashed ? local_reduction.stash[action.slot]
                          : agents_[agent].buffers[action.buffer];
  };
  expect(belongs(action, local_reduction.finished), "an action of another round");
  switch (action.kind) {
    case Action::Kind::kCredit:
      events_.push_back({.kind = EventKind::kCredit,
                         .agent = action.peer,
                         .tensor = tensor,
                         .round = action.round,
                         .from = agent});
      break;
    case Action::Kind::kSend: post_send(agent, tensor, action); break;
    case Action::Kind::kStash: local_reduction.stash[action.slot] = payload(); break;
    case Action::Kind::kAccumulate: accumulate(local_reduction, action, payload()); break;
    case Action::Kind::kFinalize: finalize(agents_[agent], local_reduction, action); break;
    case Action::Kind::kDeliver: deliver(local_reduction, action, payload()); break;
    case Action::Kind::kRelease: release(agent, tensor, action.buffer); break;
    case Action::Kind::kTakeTurn: expect(false, "a turn of NCCL"); break;
    case Action::Kind::kFinish: finish(agent, tensor, action); break;
  }
}

void Simulation::post_send(uint32_t agent, uint32_t tensor, const Action& action) {
  LocalReduction& local_reduction = agents_[agent].local_reductions[tensor];
  uint64_t allowed = 0;
  for (const CollectiveNeeds::Target& target : local_reduction.collective->needs().targets)
    if (target.peer == action.peer) allowed = target.sends_max;
  expect(
      ++local_reduction.sends_open[action.peer] <= std::min<uint64_t>(allowed, kSendsInFlightMax),
      "too many sends in flight");
  ++agents_[agent].frames_sent;
  events_.push_back({.kind = EventKind::kTransmit,
                     .agent = agent,
                     .tensor = tensor,
                     .send = action,
                     .header = frame_header(local_reduction.plan, tensor, action),
                     .payload = chunk_bytes(local_reduction, action)});
}

void Simulation::accumulate(LocalReduction& local_reduction, const Action& action,
                            const Bytes& payload) {
  expect(payload.size() == action.bytes, "a payload of another length is added");
  std::byte* target =
      local_reduction.rank_buffers[0].data() + chunk_offset(local_reduction.plan, action);
  combine(local_reduction.plan, action.payload_first ? payload.data() : target,
          action.payload_first ? target : payload.data(), target, action.bytes);
}

void Simulation::finalize(const Agent& agent, LocalReduction& local_reduction,
                          const Action& action) {
  const size_t offset = chunk_offset(local_reduction.plan, action);
  std::byte* sum = local_reduction.rank_buffers[0].data() + offset;
  if (local_reduction.plan.op == ReduceOp::kAverage)
    divide(local_reduction.plan.dtype, sum, action.bytes, scenario_.world());
  const uint32_t shard = local_reduction.plan.chunk_plan().range(action.chunk).shard;
  for (size_t i = 0; i < local_reduction.rank_buffers.size(); ++i) {
    const bool gets = local_reduction.plan.kind == CollectiveKind::kReduce
                          ? agent.ranks[i] == local_reduction.plan.root
                      : local_reduction.plan.kind == CollectiveKind::kReduceScatter
                          ? agent.ranks[i] == shard
                          : true;
    if (gets && i > 0)
      std::copy_n(sum, action.bytes, local_reduction.rank_buffers[i].data() + offset);
  }
}

void Simulation::deliver(LocalReduction& local_reduction, const Action& action,
                         const Bytes& payload) {
  expect(payload.size() == action.bytes, "a payload of another length is delivered");
  if (payload.size() != action.bytes) return;
  for (Bytes& rank_buffer : local_reduction.rank_buffers) {
    std::copy(
        payload.begin(), payload.end(),
        rank_buffer.begin() + static_cast<ptrdiff_t>(chunk_offset(local_reduction.plan, action)));
  }
}

void Simulation::release(uint32_t agent, uint32_t tensor, uint32_t buffer) {
  --agents_[agent].local_reductions[tensor].buffers_held;
  agents_[agent].buffers[buffer].clear();  // a later use of it cannot go unnoticed
  link(buffer / scenario_.buffers, agent).free_buffers.push_back(buffer);
}

void Simulation::finish(uint32_t agent, uint32_t tensor, const Action& action) {
  LocalReduction& local_reduction = agents_[agent].local_reductions[tensor];
  expect(&action == &actions_.back(), "kFinish is not the last action");
  expect(local_reduction.collective->active_round() == 0, "a finished round is still active");
  const auto none = [](uint64_t open) { return open == 0; };
  expect(std::all_of(local_reduction.sends_open.begin(), local_reduction.sends_open.end(), none),
         "finished with a send outstanding");
  expect(local_reduction.buffers_held == 0, "finished with a buffer held");
  if (reduces(local_reduction.plan.kind)) {
    check_sums(agents_[agent], tensor, action.round);
  } else {
    check_blocks(agents_[agent], tensor, action.round);
  }
  ++local_reduction.finished;
  if (local_reduction.finished == scenario_.rounds) return;
  events_.push_back({.agent = agent,
                     .tensor = tensor,
                     .time = now_ + pick(random_, 0, 30),
                     .round = local_reduction.finished + 1});
}

void Simulation::check_sums(const Agent& agent, uint32_t tensor, uint64_t round) {
  const LocalReduction& local_reduction = agent.local_reductions[tensor];
  const ChunkPlan cut = local_reduction.plan.chunk_plan();
  const auto element_bytes = static_cast<ptrdiff_t>(dtype_bytes(local_reduction.plan.dtype));
  for (size_t i = 0; i < local_reduction.rank_buffers.size(); ++i) {
    const uint32_t rank = agent.ranks[i];
    if (local_reduction.plan.kind == CollectiveKind::kReduce && rank != local_reduction.plan.root)
      continue;
    const uint32_t shard = local_reduction.plan.kind == CollectiveKind::kReduceScatter ? rank : 0;
    const auto first = static_cast<ptrdiff_t>(cut.shard_first(shard));
    const auto last = static_cast<ptrdiff_t>(cut.shard_first(shard + 1));
    const auto rank_buffer = local_reduction.rank_buffers[i].begin();
    const Bytes part(rank_buffer + first * element_bytes, rank_buffer + last * element_bytes);
    const std::string wrong = oracle_.check_sum(tensor, round, static_cast<uint64_t>(first), part);
    expect(wrong.empty(), "rank " + std::to_string(rank) + ": " + wrong);
    results_[{tensor, round, rank}] = part;
    const auto lowest = results_.lower_bound({tensor, round, 0});
    if (local_reduction.plan.kind == CollectiveKind::kAllReduce)
      expect(lowest->second == part, "two ranks have different bits");
  }
}

void Simulation::check_blocks(const Agent& agent, uint32_t tensor, uint64_t round) {
  const LocalReduction& local_reduction = agent.local_reductions[tensor];
  const uint64_t capacity = local_reduction.plan.count * dtype_bytes(local_reduction.plan.dtype);
  for (uint32_t index = 0;
       index < block_count(local_reduction.plan.kind, local_reduction.plan.world()); ++index) {
    const auto gets = [&](uint32_t rank) { return gets_block(local_reduction.plan, rank, index); };
    if (std::none_of(agent.ranks.begin(), agent.ranks.end(), gets)) continue;
    const auto first =
        local_reduction.rank_buffers[0].begin() + static_cast<ptrdiff_t>(index * capacity);
    const auto bytes = static_cast<ptrdiff_t>(oracle_.block_bytes(tensor, round, index));
    const std::string wrong =
        oracle_.check_block(tensor, round, index, Bytes(first, first + bytes));
    expect(wrong.empty(), wrong);
  }
}

void Simulation::check_end() {
  for (uint32_t from = 0; from < scenario_.agents; ++from)
    for (uint32_t to = 0; to < scenario_.agents; ++to)
      expect(link(from, to).free_buffers.size() == scenario_.buffers, "a receive buffer is lost");
  uint64_t sent = 0;
  for (const Agent& agent : agents_) {
    sent += agent.frames_sent;
    for (const LocalReduction& local_reduction : agent.local_reductions)
      expect(local_reduction.finished == scenario_.rounds, "hung:" + blocked_rounds());
  }
  uint64_t formula = 0;
  for (uint32_t tensor = 0; tensor < scenario_.tensors.size(); ++tensor)
    for (uint64_t round = 1; round <= scenario_.rounds; ++round)
      formula += oracle_.frames(tensor, round);
  expect(sent == formula,
         "sent " + std::to_string(sent) + " frames, not " + std::to_string(formula));
}

}  // namespace gradbus::sim
