#include "server/parameter_server/parameter_tensor.h"

#include <algorithm>
#include <bit>

#include "compression/kernels/vector/compensate.h"
#include "server/parameter_server/server_optimizer.h"

namespace gradbus {
namespace {

using Kind = SyncMode::Kind;

constexpr float kStepsMax = 1 << 24;  // exact as a float

}  // namespace

template <typename... Values>
void ParameterTensor::trace(uint32_t chunk, spdlog::format_string_t<Values...> what,
                            Values&&... values) const {
  if (spdlog::should_log(spdlog::level::trace))
    spdlog::trace("job \"{}\": tensor \"{}\" from element {}: {}", plan().job, plan().name,
                  first_element(chunk), fmt::format(what, std::forward<Values>(values)...));
}

ParameterTensor::ParameterTensor(const ShardPlan& plan, ReduceOp op, Transport& transport,
                                 uint32_t buffers, uint64_t buffer_bytes)
    : ShardTensor(plan, transport, buffers, buffer_bytes),
      chunks_(chunks_stored()),
      workers_(chunks_stored() * agents()),
      vectors_(optimizer_vectors(plan.mode.optimizer) + (quorum() ? 1 : 0)),
      mean_(op == ReduceOp::kAverage),
      state_(transport) {
  for (Chunk& chunk : chunks_)
    chunk.learning_rate = static_cast<float>(plan.mode.optimizer.learning_rate);
  for (uint32_t chunk = 0; chunk < plan.collective.chunks(); ++chunk)
    if (plan.collective.shard_of(chunk) == plan.shard) chunk_of_.push_back(chunk);
  if (!plan.moved) return;
  for (const uint32_t chunk : chunk_of_)
    chunks_[slot(chunk)].lacks = elements(chunk) * (1 + optimizer_vectors(plan.mode.optimizer));
}

Result<std::unique_ptr<ShardTensor>> ParameterTensor::create(const ShardPlan& plan,
                                                             Transport& transport) {
  std::unique_ptr<ParameterTensor> tensor(
      new ParameterTensor(plan, plan.collective.op, transport, plan.collective.agents + 1));
  GRADBUS_RETURN_IF_ERROR(tensor->open());
  GRADBUS_RETURN_IF_ERROR(tensor->open_state());
  return std::unique_ptr<ShardTensor>(std::move(tensor));
}

Status ParameterTensor::open_state() {
  return state_.map(chunks_stored() * vectors_ * plan().collective.chunk_elements * sizeof(float),
                    "the optimizer of tensor \"" + plan().name + "\"");
}

uint64_t ParameterTensor::vector_offset(uint32_t chunk, uint32_t index) const {
  return (slot(chunk) * vectors_ + index) * plan().collective.chunk_elements;
}

std::span<float> ParameterTensor::vector(uint32_t chunk, uint32_t index) const {
  if (index >= vectors_) return {};
  return {reinterpret_cast<float*>(state_.bytes().data()) + vector_offset(chunk, index),
          elements(chunk)};
}

std::span<float> ParameterTensor::parameters(uint32_t chunk, uint32_t buffer_index) const {
  return {reinterpret_cast<float*>(buffer(chunk, buffer_index)), elements(chunk)};
}

// ---- snapshots

// Quorum's open step is not part of it, because no agent has got an answer to its pushes.
bool ParameterTensor::save(uint32_t chunk, SnapshotPiece& piece, std::vector<float>& values) const {
  const Chunk& state = chunks_[slot(chunk)];
  if (!state.set) return false;
  piece.optimizer = static_cast<uint32_t>(plan().mode.optimizer.kind);
  piece.vectors = static_cast<uint16_t>(optimizer_vectors(plan().mode.optimizer));
  piece.layout = static_cast<uint16_t>(plan().mode.layout);
  piece.learning_rate = state.learning_rate;
  piece.count = plan().collective.count;
  piece.first = first_element(chunk);
  piece.elements = elements(chunk);
  piece.steps = state.steps;
  plan().name.copy(piece.tensor, kTensorNameBytesMax);
  values.clear();
  const auto append = [&](std::span<const float> more) {
    values.insert(values.end(), more.begin(), more.end());
  };
  append(parameters(chunk, state.current));
  for (uint32_t index = 0; index < piece.vectors; ++index) append(vector(chunk, index));
  return true;
}

void ParameterTensor::restore(const std::vector<RestoredChunk>& chunks) {
  for (const uint32_t chunk : chunk_of_) {
    const RestoredChunk& from = chunks[slot(chunk)];
    Chunk& state = chunks_[slot(chunk)];
    state.current = unused_buffer(chunk);
    use(chunk, state.current);
    state.set = true;
    state.steps = from.steps;
    state.learning_rate = from.learning_rate;
    const float* next = from.values.data();
    const auto take = [&](std::span<float> into) {
      std::copy_n(next, into.size(), into.data());
      next += into.size();
    };
    take(parameters(chunk, state.current));
    for (uint32_t index = 0; index < optimizer_vectors(plan().mode.optimizer); ++index)
      take(vector(chunk, index));
  }
}

// ---- moves

ShardChunkState ParameterTensor::chunk_state(uint32_t chunk) const {
  const Chunk& state = chunks_[slot(chunk)];
  return {state.steps, state.learning_rate};
}

Slice ParameterTensor::state_slice(uint32_t chunk, uint32_t vector, uint64_t first,
                                   uint64_t elements) const {
  const uint64_t bytes = elements * sizeof(float);
  if (vector > 0)
    return {state_.region(), (vector_offset(chunk, vector - 1) + first) * sizeof(float), bytes};
  Slice slice = ShardTensor::slice({.chunk = chunk, .buffer = chunks_[slot(chunk)].current});
  slice.offset += first * sizeof(float);
  slice.bytes = bytes;
  return slice;
}

// Parts of several old chunks can form one new chunk. As in a snapshot, the largest step count is
// used: with it, the bias correction of an optimizer's means is smaller.
bool ParameterTensor::take_state(uint32_t chunk, const ShardChunkPart& part,
                                 std::vector<ShardAnswer>& answers) {
  Chunk& state = chunks_[slot(chunk)];
  if (state.set || part.values.size() > state.lacks) return false;
  if (state.lacks == elements(chunk) * state_vectors()) {
    state.current = unused_buffer(chunk);
    use(chunk, state.current);
  }
  state.steps = std::max(state.steps, part.of.steps);
  state.learning_rate = part.of.learning_rate;
  const std::span<float> into =
      part.vector == 0 ? parameters(chunk, state.current) : vector(chunk, part.vector - 1);
  std::ranges::copy(part.values, into.begin() + static_cast<ptrdiff_t>(part.first));
  state.lacks -= part.values.size();
  if (state.lacks > 0) return false;
  state.set = true;
  for (uint32_t agent = 0; agent < agents(); ++agent) worker(agent, chunk).known = state.steps;
  answer_waiting(chunk, answers);
  return true;
}

// ---- pushes

void ParameterTensor::take(const Push& push, Nanos now, std::vector<ShardAnswer>& answers) {
  const uint32_t chunk = push.chunk;
  Chunk& state = chunks_[slot(chunk)];
  Worker& from = worker(push.agent, chunk);
  const bool first = pushes(push.agent, chunk) == 1;
  from.waits = true;
  from.pulls = push.pull_only || first;
  from.part = push.reads ? push.part : 0;
  if (!push.pull_only) {
    from.away = from.at_fence = false;
  } else if (!push.reads && !push.writes) {
    leave(push.agent, chunk);
  }
  from.rests = push.pull_only;
  if (first) from.known = state.steps;
  from.staleness = static_cast<uint32_t>(state.steps - from.known);
  if (push.has_rate) state.learning_rate = push.learning_rate;
  if (first && push.agent == 0 && !state.set && !plan().moved) {
    set(chunk, values_of(push));
    trace(chunk, "set by agent 0");
  } else if (push.writes && push.agent == 0 && state.set) {
    write_optimizer_state(chunk, push.part, values_of(push));
    trace(chunk, "part {} written by agent 0", push.part);
  }
  if (!from.pulls) {
    ++from.steps;
    const std::span<const float> gradient = values_of(push);
    from.pulls = !is_finite(push, gradient);
    if (!from.pulls) {
      trace(chunk, "push {} of agent {}", pushes(push.agent, chunk), push.agent);
      quorum() ? add(push.agent, chunk, gradient, now)
               : step_on(chunk, gradient, push_scale(push.agent));
    }
  }
  if (quorum() && quorum_is_there(chunk)) close_step(chunk);
  answer_waiting(chunk, answers);
}

std::span<const float> ParameterTensor::values_of(const Push& push) {
  return {reinterpret_cast<const float*>(push.payload.data()), push.payload.size() / sizeof(float)};
}

void ParameterTensor::set(uint32_t chunk, std::span<const float> pushed) {
  Chunk& state = chunks_[slot(chunk)];
  state.current = unused_buffer(chunk);
  use(chunk, state.current);
  state.set = true;
  // The sum of ranks that all have the same values.
  const float scale = 1.0F / static_cast<float>(plan().ranks.front());
  const std::span<float> set_to = parameters(chunk, state.current);
  for (size_t i = 0; i < pushed.size(); ++i) set_to[i] = scale * pushed[i];
}

// Copies bits, except for steps, without which an optimizer's vectors are useless. A float
// represents all integers up to 2^24; beyond, bias correction has no effect any more.
void ParameterTensor::write_optimizer_state(uint32_t chunk, uint32_t part,
                                            std::span<const float> values) {
  Chunk& state = chunks_[slot(chunk)];
  if (part == 0) {
    const uint32_t next = unused_buffer(chunk);
    std::ranges::copy(values, parameters(chunk, next).begin());
    use(chunk, next);
    let_go(chunk, state.current);
    state.current = next;
  } else if (part < state_vectors()) {
    std::ranges::copy(values, vector(chunk, part - 1).begin());
  } else {
    float steps = 0;
    for (const float value : values) steps = value > steps ? value : steps;
    state.steps = static_cast<uint64_t>(std::min(steps, kStepsMax));
    for (uint32_t agent = 0; agent < agents(); ++agent) worker(agent, chunk).known = state.steps;
  }
}

bool ParameterTensor::is_finite(const Push& push, std::span<const float> gradient) {
  const size_t bad = first_not_finite(gradient.data(), gradient.size());
  if (bad == gradient.size()) return true;
  // Logs at 1, 2, 4, ... such gradients, because a diverged run would fill the log.
  if (std::has_single_bit(++not_finite_)) {
    const uint64_t element = plan().collective.chunk_elements * push.chunk + bad;
    spdlog::warn(
        "job \"{}\": tensor \"{}\": the gradient of agent {} is {} at element {}; no step is made "
        "with such a chunk ({} by now)",
        plan().job, plan().name, push.agent, gradient[bad], element, not_finite_);
  }
  return false;
}

float ParameterTensor::push_scale(uint32_t agent) const {
  return mean_ ? 1.0F / static_cast<float>(plan().ranks[agent]) : 1.0F;
}

void ParameterTensor::step_on(uint32_t chunk, std::span<const float> gradient, float scale) {
  Chunk& state = chunks_[slot(chunk)];
  const uint32_t next = unused_buffer(chunk);
  const ServerOptimizer& optimizer = plan().mode.optimizer;
  const uint32_t remembered = optimizer_vectors(optimizer);
  OptimizerStep one;
  one.number = ++state.steps;
  one.learning_rate = state.learning_rate;
  trace(chunk, "step {}, learning rate {}", one.number, one.learning_rate);
  one.gradient_scale = scale;
  one.gradient = gradient;
  one.before = parameters(chunk, state.current);
  one.after = parameters(chunk, next);
  if (remembered > 0) one.first = vector(chunk, 0);
  if (remembered > 1) one.second = vector(chunk, 1);
  step(optimizer, one);
  use(chunk, next);
  let_go(chunk, state.current);
  state.current = next;
}

// ---- fences

// Agents that have all pulled are together at a fence and continue from there, and ssp counts steps
// from it on. flush() pulls once more then, which changes nothing. An agent that pulls again after
// that has still not returned.
void ParameterTensor::leave(uint32_t agent, uint32_t chunk) {
  Worker& from = worker(agent, chunk);
  from.away = !from.at_fence;
  from.at_fence = false;
  for (uint32_t other = 0; other < agents(); ++other)
    if (!worker(other, chunk).away) return;
  for (uint32_t other = 0; other < agents(); ++other) {
    Worker& each = worker(other, chunk);
    each.away = false;
    each.at_fence = true;
    each.steps = 0;
  }
}

// ---- quorum

void ParameterTensor::add(uint32_t agent, uint32_t chunk, std::span<const float> gradient,
                          Nanos now) {
  Chunk& state = chunks_[slot(chunk)];
  const std::span<float> sum = vector(chunk, vectors_ - 1);
  const float scale = push_scale(agent);
  for (size_t i = 0; i < gradient.size(); ++i)
    sum[i] = (state.added == 0 ? 0.0F : sum[i]) + scale * gradient[i];
  if (state.added++ == 0 && plan().mode.deadline_ms > 0)
    state.deadline = now + Nanos{plan().mode.deadline_ms} * kMillisecond;
}

// A step is open, and enough agents have pushed: the quorum, or all that can.
bool ParameterTensor::quorum_is_there(uint32_t chunk) {
  uint32_t active = 0;
  for (uint32_t agent = 0; agent < agents(); ++agent) active += worker(agent, chunk).away ? 0 : 1;
  const uint32_t added = chunks_[slot(chunk)].added;
  return added > 0 && added >= std::min(plan().mode.quorum, active);
}

void ParameterTensor::close_step(uint32_t chunk) {
  Chunk& state = chunks_[slot(chunk)];
  const float mean = 1.0F / static_cast<float>(state.added);
  state.added = 0;
  state.deadline = 0;
  step_on(chunk, vector(chunk, vectors_ - 1), mean);
}

Nanos ParameterTensor::deadlines(Nanos now, std::vector<uint32_t>& due) {
  if (plan().mode.deadline_ms == 0) return 0;
  Nanos next = 0;
  for (const uint32_t chunk : chunk_of_) {
    Chunk& state = chunks_[slot(chunk)];
    if (state.deadline == 0) continue;
    if (now < state.deadline) {
      next = next == 0 ? state.deadline : std::min(next, state.deadline);
      continue;
    }
    state.deadline = 0;
    due.push_back(chunk);
  }
  return next;
}

void ParameterTensor::on_deadline(uint32_t chunk, uint64_t steps,
                                  std::vector<ShardAnswer>& answers) {
  const Chunk& state = chunks_[slot(chunk)];
  if (state.added == 0 || state.steps != steps) return;
  close_step(chunk);
  answer_waiting(chunk, answers);
}

// ---- answers

// Sends the current parameters, which may be newer.
void ParameterTensor::answer_again(uint32_t agent, uint32_t chunk,
                                   std::vector<ShardAnswer>& answers) {
  Worker& to = worker(agent, chunk);
  to.known = chunks_[slot(chunk)].steps;
  give(agent, chunk, to.staleness, answers);
}

// Whether an agent whose last push has no answer yet can be answered.
bool ParameterTensor::may_go(uint32_t agent, uint32_t chunk) {
  const Chunk& state = chunks_[slot(chunk)];
  if (!state.set) return false;
  if (worker(agent, chunk).pulls) return true;
  if (quorum()) return state.added == 0;  // every agent that pushed took part in the closed step
  if (plan().mode.kind != Kind::kServerSsp) return true;
  uint64_t slowest = UINT64_MAX;
  for (uint32_t other = 0; other < agents(); ++other)
    if (!worker(other, chunk).away) slowest = std::min(slowest, worker(other, chunk).steps);
  return worker(agent, chunk).steps - slowest <= plan().mode.max_staleness;
}

void ParameterTensor::answer_waiting(uint32_t chunk, std::vector<ShardAnswer>& answers) {
  const Chunk& state = chunks_[slot(chunk)];
  for (uint32_t agent = 0; agent < agents(); ++agent) {
    Worker& to = worker(agent, chunk);
    if (!to.waits || !may_go(agent, chunk)) continue;
    to.waits = false;
    to.known = state.steps;
    give(agent, chunk, to.staleness, answers);
  }
}

void ParameterTensor::give(uint32_t agent, uint32_t chunk, uint32_t staleness,
                           std::vector<ShardAnswer>& answers) {
  answer(agent, chunk, wanted_buffer(agent, chunk), staleness, answers);
}

// One buffer is unused: one of the others has the parameters, and each other agent may use one.
uint32_t ParameterTensor::wanted_buffer(uint32_t agent, uint32_t chunk) {
  const uint32_t part = wanted_part(agent, chunk);
  if (part == 0) return chunks_[slot(chunk)].current;
  const uint32_t copy = unused_buffer(chunk);
  copy_optimizer_state(chunk, part, parameters(chunk, copy));
  return copy;
}

void ParameterTensor::copy_optimizer_state(uint32_t chunk, uint32_t part,
                                           std::span<float> into) const {
  if (part < state_vectors()) {
    std::ranges::copy(state_values(chunk, part), into.begin());
  } else {
    std::ranges::fill(into, static_cast<float>(chunks_[slot(chunk)].steps));
  }
}

}  // namespace gradbus
