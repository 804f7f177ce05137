// Modes ps:async, ps:ssp and ps:quorum on a shard. It holds the parameters and the optimizer state,
// makes steps on pushes, and answers with parameters.
//
// The first round sets the parameters to the push of agent 0, unless they were restored. The other
// agents get them too. After it:
//   async    each push is a step; its agent is answered at once
//   ssp      each push is a step; its agent is answered when it is at most max_staleness steps
//            ahead of the slowest agent (Ho et al. 2013)
//   quorum   pushes are summed. The q-th push, or the deadline, makes their mean a step and answers
//            all agents that take part. A later push takes part in the step that is open then
//
// A gradient that is not finite would destroy the parameters of all agents, so it makes no step.
// Its agent is answered as after a pull. The shard's log names tensor, chunk, node and index.
//
// No agent waits for an agent that has pulled and made no step since: it has ended, or evaluates.
// All agents continue when all have pulled, as flush() does. Then the bound of ssp holds again,
// also for an agent that has made no step yet. In quorum, the next step again waits for q of them
// or for its deadline.
//
// A chunk has one buffer more than there are agents: each agent may have one in flight, and one is
// written. coded_parameters.h handles compressed tensors; whole_parameters.h handles steps on a
// whole tensor.
#pragma once

#include "common/log.h"
#include "server/parameter_server/server_optimizer.h"
#include "server/parameter_server/shard_tensor.h"

namespace gradbus {

class ParameterTensor : public ShardTensor {
 public:
  static Result<std::unique_ptr<ShardTensor>> create(const ShardPlan& plan, Transport& transport);
  Nanos deadlines(Nanos now, std::vector<uint32_t>& due) override;
  uint64_t steps_of(uint32_t chunk) const override { return chunks_[slot(chunk)].steps; }
  void on_deadline(uint32_t chunk, uint64_t steps, std::vector<ShardAnswer>& answers) override;
  bool save(uint32_t chunk, SnapshotPiece& piece, std::vector<float>& values) const override;
  void restore(const std::vector<RestoredChunk>& chunks) override;
  uint32_t state_vectors() const override { return 1 + optimizer_vectors(plan().mode.optimizer); }
  uint32_t optimizer_state_parts() const override { return state_vectors() + 1; }
  bool is_set(uint32_t chunk) const override { return chunks_[slot(chunk)].set; }
  ShardChunkState chunk_state(uint32_t chunk) const override;
  std::span<const float> state_values(uint32_t chunk, uint32_t vector) const override {
    return vector == 0 ? parameters(chunk) : this->vector(chunk, vector - 1);
  }
  Slice state_slice(uint32_t chunk, uint32_t vector, uint64_t first,
                    uint64_t elements) const override;
  bool take_state(uint32_t chunk, const ShardChunkPart& part,
                  std::vector<ShardAnswer>& answers) override;

 protected:
  // `plan` describes the frames, `op` how a node's ranks are summed; buffers as in ShardTensor.
  ParameterTensor(const ShardPlan& plan, ReduceOp op, Transport& transport, uint32_t buffers,
                  uint64_t buffer_bytes = 0);
  Status open_state();
  void take(const Push& push, Nanos now, std::vector<ShardAnswer>& answers) final;
  void answer_again(uint32_t agent, uint32_t chunk, std::vector<ShardAnswer>& answers) override;

  // The values of the push: a gradient or, in agent 0's first round, parameters. Valid until the
  // next call.
  virtual std::span<const float> values_of(const Push& push);
  // Answers the last push of `agent` with the current parameters.
  virtual void give(uint32_t agent, uint32_t chunk, uint32_t staleness,
                    std::vector<ShardAnswer>& answers);
  std::span<const float> parameters(uint32_t chunk) const {
    return parameters(chunk, chunks_[slot(chunk)].current);
  }
  // A buffer of the chunk with what the agent's last push requested: the parameters, or a copy of a
  // part of the kept state.
  uint32_t wanted_buffer(uint32_t agent, uint32_t chunk);
  // The part that the agent's last push requested; 0: the parameters.
  uint32_t wanted_part(uint32_t agent, uint32_t chunk) { return worker(agent, chunk).part; }
  void copy_optimizer_state(uint32_t chunk, uint32_t part, std::span<float> into) const;
  // Whether the agent's last push was a pull.
  bool rests(uint32_t agent, uint32_t chunk) { return worker(agent, chunk).rests; }

 private:
  struct Worker {           // state of an agent for one chunk
    bool waits = false;     // its last push has no answer yet
    bool pulls = false;     // that push was a pull, not a step
    bool rests = false;     // its last push was a pull
    bool away = false;      // it pulled while others had not, and has not pushed since
    bool at_fence = false;  // all had pulled, and it has neither pulled nor pushed since
    uint32_t part = 0;      // part of the kept state that it reads
    uint32_t staleness = 0;
    uint64_t steps = 0;  // steps that it made since the last fence
    uint64_t known = 0;  // step count of the parameters that it got last
  };
  struct Chunk {
    bool set = false;      // whether the parameters are set
    uint32_t current = 0;  // buffer of the parameters
    uint64_t steps = 0;
    uint64_t lacks = 0;       // elements of vectors that other shards still have to send
    uint32_t added = 0;       // quorum: pushes in the open step
    Nanos deadline = 0;       // quorum: of the open step; 0: none, or already reported
    float learning_rate = 0;  // the latest one from a push
  };

  // Logs every change of the parameters, in order. With the gradients the log reproduces them.
  template <typename... Values>
  void trace(uint32_t chunk, spdlog::format_string_t<Values...> what, Values&&... values) const;
  void set(uint32_t chunk, std::span<const float> pushed);
  void write_optimizer_state(uint32_t chunk, uint32_t part, std::span<const float> values);
  bool is_finite(const Push& push, std::span<const float> gradient);
  void step_on(uint32_t chunk, std::span<const float> gradient, float scale);
  void leave(uint32_t agent, uint32_t chunk);
  void add(uint32_t agent, uint32_t chunk, std::span<const float> gradient, Nanos now);
  void close_step(uint32_t chunk);
  bool quorum_is_there(uint32_t chunk);
  bool may_go(uint32_t agent, uint32_t chunk);
  void answer_waiting(uint32_t chunk, std::vector<ShardAnswer>& answers);
  // A node's gradient is the mean over its ranks if the operation is the average.
  float push_scale(uint32_t agent) const;
  Worker& worker(uint32_t agent, uint32_t chunk) {
    return workers_[slot(chunk) * agents() + agent];
  }
  // A vector of the chunk besides its buffers: those of the optimizer, then quorum's sum.
  std::span<float> vector(uint32_t chunk, uint32_t index) const;
  uint64_t vector_offset(uint32_t chunk, uint32_t index) const;  // in elements
  std::span<float> parameters(uint32_t chunk, uint32_t buffer_index) const;
  bool quorum() const { return plan().mode.kind == SyncMode::Kind::kServerQuorum; }

  std::vector<Chunk> chunks_;       // by slot
  std::vector<uint32_t> chunk_of_;  // by slot
  std::vector<Worker> workers_;     // by slot and agent
  const uint32_t vectors_;
  const bool mean_;          // whether a node's ranks are averaged
  uint64_t not_finite_ = 0;  // pushes that made no step
  StagingMemory state_;
};

}  // namespace gradbus
