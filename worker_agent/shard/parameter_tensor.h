// Modes ps:async, ps:ssp and ps:quorum on a shard: it holds the parameters and what the optimizer
// remembers, steps on pushes, and answers with parameters.
//
// The first round sets the parameters to what agent 0 pushes, unless they were restored; the others
// get them too. After it,
//   async    each push is a step; its agent is answered at once
//   ssp      each push is a step; its agent is answered when the slowest agent has made all but
//            max_staleness of the steps it has made itself (Ho et al. 2013)
//   quorum   pushes are added up; the q-th, or the deadline, makes their mean a step and answers
//   all
//            that take part. One that comes later takes part in the step that is open then
//
// A gradient that is not finite would spoil the parameters for all agents, so no step is made with
// it: its agent is answered as if it had pulled, and the shard's log names tensor, chunk, node and
// index.
//
// Nobody waits for an agent that has pulled and made no step since: it has ended, or evaluates. But
// in quorum all go on when all have pulled, as flush() does: a step waits for q of them again, or
// for its deadline.
//
// A chunk has a buffer more than there are agents: each may have one on its way, and one is
// written. What travels compressed: coded_parameters.h; what is stepped on as a whole:
// whole_parameters.h.
#pragma once

#include "common/log.h"
#include "worker_agent/shard/server_optimizer.h"
#include "worker_agent/shard/shard_tensor.h"

namespace gradbus {

class ParameterTensor : public ShardTensor {
 public:
  static Result<std::unique_ptr<ShardTensor>> create(const ShardPlan& plan, Transport& transport);
  Nanos deadlines(Nanos now, std::vector<uint32_t>& due) override;
  uint64_t steps_of(uint32_t chunk) const override { return chunks_[slot(chunk)].steps; }
  void on_deadline(uint32_t chunk, uint64_t steps, std::vector<ShardAnswer>& answers) override;
  bool save(uint32_t chunk, SnapshotPiece& piece, std::vector<float>& values) const override;
  void restore(const std::vector<RestoredChunk>& chunks) override;
  uint32_t vectors_kept() const override { return 1 + optimizer_vectors(plan().mode.optimizer); }
  uint32_t parts_kept() const override { return vectors_kept() + 1; }
  bool is_set(uint32_t chunk) const override { return chunks_[slot(chunk)].set; }
  KeptChunk kept(uint32_t chunk) const override;
  std::span<const float> kept_values(uint32_t chunk, uint32_t vector) const override {
    return vector == 0 ? parameters(chunk) : this->vector(chunk, vector - 1);
  }
  Slice kept_slice(uint32_t chunk, uint32_t vector, uint64_t first,
                   uint64_t elements) const override;
  bool take_kept(uint32_t chunk, const KeptPart& part, std::vector<ShardAnswer>& answers) override;

 protected:
  // `plan` is what frames say, `op` how a node's ranks are summed; buffers as ShardTensor's.
  ParameterTensor(const ShardPlan& plan, ReduceOp op, Transport& transport, uint32_t buffers,
                  uint64_t buffer_bytes = 0);
  Status open_state();
  void take(const Push& push, Nanos now, std::vector<ShardAnswer>& answers) final;
  void answer_again(uint32_t agent, uint32_t chunk, std::vector<ShardAnswer>& answers) override;

  // What the push brings: a gradient, or in agent 0's first round parameters. Until the next call.
  virtual std::span<const float> values_of(const Push& push);
  // Answers the last push of `agent` with the parameters as they are.
  virtual void give(uint32_t agent, uint32_t chunk, uint32_t staleness,
                    std::vector<ShardAnswer>& answers);
  std::span<const float> parameters(uint32_t chunk) const {
    return parameters(chunk, chunks_[slot(chunk)].current);
  }
  // Of the chunk's, with what the agent's last push has asked for: parameters, or a part that is
  // kept, copied for it.
  uint32_t wanted_buffer(uint32_t agent, uint32_t chunk);
  // Which part the agent's last push has asked for; 0: the parameters.
  uint32_t wanted_part(uint32_t agent, uint32_t chunk) { return worker(agent, chunk).part; }
  void copy_kept(uint32_t chunk, uint32_t part, std::span<float> into) const;
  // The agent's last push was a pull.
  bool rests(uint32_t agent, uint32_t chunk) { return worker(agent, chunk).rests; }

 private:
  struct Worker {        // an agent, of one chunk
    bool waits = false;  // its last push has no answer yet
    bool pulls = false;  // which was no step
    bool rests = false;  // it has pulled, and not pushed since
    // quorum: it has pulled when not all others had, and not pushed since
    bool away = false;
    bool at_fence = false;  // all had; it has neither pulled nor pushed since
    uint32_t part = 0;      // which it reads of what is kept
    uint32_t staleness = 0;
    uint64_t steps = 0;  // it has made
    uint64_t known = 0;  // steps in the parameters that it was given last
  };
  struct Chunk {
    bool set = false;      // the parameters are
    uint32_t current = 0;  // buffer of the parameters
    uint64_t steps = 0;
    uint64_t lacks = 0;       // elements of vectors that are still to come from other shards
    uint32_t added = 0;       // quorum: pushes in the open step
    Nanos deadline = 0;       // quorum: of the open step; 0: none, or it was told of
    float learning_rate = 0;  // the last one that came with a push
  };

  // What changes parameters, in its order: with the gradients it gives them again.
  template <typename... Values>
  void trace(uint32_t chunk, spdlog::format_string_t<Values...> what, Values&&... values) const;
  void set(uint32_t chunk, std::span<const float> pushed);
  void write_kept(uint32_t chunk, uint32_t part, std::span<const float> values);
  bool is_finite(const Push& push, std::span<const float> gradient);
  void step_on(uint32_t chunk, std::span<const float> gradient, float scale);
  void add(uint32_t agent, uint32_t chunk, std::span<const float> gradient, Nanos now);
  void close_step(uint32_t chunk);
  void leave_quorum(uint32_t agent, uint32_t chunk);
  bool quorum_is_there(uint32_t chunk);
  bool may_go(uint32_t agent, uint32_t chunk);
  void answer_waiting(uint32_t chunk, std::vector<ShardAnswer>& answers);
  // A node's gradient is the mean of its ranks' where the operation is the average.
  float push_scale(uint32_t agent) const;
  Worker& worker(uint32_t agent, uint32_t chunk) {
    return workers_[slot(chunk) * agents() + agent];
  }
  // Of the vectors that a chunk has besides its buffers: the optimizer's, then quorum's sum.
  std::span<float> vector(uint32_t chunk, uint32_t index) const;
  uint64_t vector_offset(uint32_t chunk, uint32_t index) const;  // in elements
  std::span<float> parameters(uint32_t chunk, uint32_t buffer_index) const;
  bool quorum() const { return plan().mode.kind == ExchangeMode::Kind::kServerQuorum; }

  std::vector<Chunk> chunks_;       // by slot
  std::vector<uint32_t> chunk_of_;  // by slot
  std::vector<Worker> workers_;     // by slot and agent
  const uint32_t vectors_;
  const bool mean_;          // of a node's ranks
  uint64_t not_finite_ = 0;  // pushes that made no step
  StagingMemory state_;
};

}  // namespace gradbus
