// The work of one parameter-server shard for one tensor. It applies the agents' pushes of its
// chunks (proto/placement.h) and decides which agent gets which bytes as an answer. Chunks are
// independent. It reads no clock; the caller passes the time.
//
// A push is applied at once, so it does not occupy a receive buffer, and agents need no credits.
// There is one exception: while the transport still has an answer, the agent's next push waits for
// its on_sent(). That wait is short, because the agent has already received the answer.
//
// BUFFERS. An answer is sent without a copy, from the memory where it was computed. So a chunk has
// a few buffers, each with a count of its users. The next sum or parameters are written to an
// unused one.
//
// COPIES (mode option replicas=2). The state of a tensor follows from its pushes and deadlines in
// their order, chunk by chunk. A second object of this class on another shard, the backup replica,
// gets the same sequence, so it has the same bits. It sends no answers. When the shard that it
// copies is lost, each agent sends its unanswered pushes again and is answered from then on.
// fail_over() returns whether the backup replica has already applied that push; otherwise on_push()
// applies it.
//
// The position of a push of several frames in the order is that of its last frame. Earlier frames
// change nothing that others see, so a backup replica may get them in any order.
//
// Engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "data_plane/staging_memory.h"
#include "proto/frame.h"
#include "proto/shard_snapshot.h"
#include "server/parameter_server/shard_plan.h"

namespace gradbus {

// A chunk to send to an agent.
struct ShardAnswer {
  uint32_t agent = 0;
  uint32_t chunk = 0;
  uint64_t round = 0;      // of that agent
  uint32_t staleness = 0;  // steps of others between the agent's parameters and its own step
  uint32_t buffer = 0;
  uint64_t bytes = 0;
};

// The kept state of a chunk, vector by vector.
struct ShardChunkState {
  uint64_t steps = 0;
  float learning_rate = 0;
};
struct ShardChunkPart {
  uint32_t vector = 0;
  uint64_t first = 0;
  std::span<const float> values;
  ShardChunkState of;
};

class ShardTensor {
 public:
  virtual ~ShardTensor() = default;
  ShardTensor(const ShardTensor&) = delete;
  ShardTensor& operator=(const ShardTensor&) = delete;

  const ShardPlan& plan() const { return plan_; }
  size_t chunks_stored() const { return stored_; }
  bool holds(uint32_t chunk) const {
    return chunk < slot_of_.size() && slot_of_[chunk] != kElsewhere;
  }
  // The maximum of answers in flight to one agent.
  virtual size_t answers_max() const { return stored_; }
  // The transport still has the last answer of this chunk to this agent. Call on_push() after
  // on_sent().
  bool must_wait(uint32_t agent, const FrameHeader& header) const;
  // Applies the push of `agent` in `payload`, whose frame format was checked. Returns kCorrupt,
  // before any write, when it is invalid. Appends the answers that can be sent now.
  Status on_push(uint32_t agent, const FrameHeader& header, std::span<const std::byte> payload,
                 Nanos now, std::vector<ShardAnswer>& answers);
  // The same in two steps, for a push that is applied later. Returns true when this frame completes
  // the push; take() then applies it. Until then the agent may not push this chunk again.
  Result<bool> admit(uint32_t agent, const FrameHeader& header, std::span<const std::byte> payload);
  void take_admitted(uint32_t agent, const FrameHeader& header, std::span<const std::byte> payload,
                     Nanos now, std::vector<ShardAnswer>& answers);
  // Whether the push of this frame was applied completely.
  bool has_taken(uint32_t agent, const FrameHeader& header) const {
    return pushes(agent, chunk_of(header)) == header.step;
  }
  // The chunk of a frame, which may be unchecked. holds() says whether it is here.
  virtual uint32_t chunk_of(const FrameHeader& header) const { return header.chunk; }
  // The transport has released the bytes of this answer.
  virtual void on_sent(const ShardAnswer& answer);
  // Appends to `due` the chunks whose open step has reached its deadline, each once. Returns when
  // to ask next, 0 for never.
  virtual Nanos deadlines(Nanos, std::vector<uint32_t>&) { return 0; }
  // Steps that this chunk has made. A deadline belongs to the step after them.
  virtual uint64_t steps_of(uint32_t) const { return 0; }
  // Closes this step of a chunk that is here, if it is still open.
  virtual void on_deadline(uint32_t, uint64_t, std::vector<ShardAnswer>&) {}

  // ---- copies
  //
  // Called before the first push. From then on only agents that have come over get answers.
  void begin_as_backup() {
    backup_replica_ = true;
    reached_.assign(reached_.size(), Reached::kNot);
  }
  bool is_backup() const { return backup_replica_; }
  bool reaches(uint32_t agent, uint32_t chunk) const {
    return reached_[pair(agent, chunk)] == Reached::kYes;
  }
  // Handles a frame of the first push of `agent` of this chunk after the loss. Returns true if that
  // push was already applied and must not be applied again. When it has arrived completely,
  // `answers` get its answer, if there is one.
  Result<bool> fail_over(uint32_t agent, const FrameHeader& header,
                         std::vector<ShardAnswer>& answers);

  // ---- state between rounds: none, unless the mode holds parameters
  //
  // Copies the chunk for a snapshot into `values`. Returns false while it has no state.
  virtual bool save(uint32_t, SnapshotPiece&, std::vector<float>&) const { return false; }
  // Called before the first push; by slot.
  virtual void restore(const std::vector<RestoredChunk>&) {}

  // ---- moves with the job's shards (ps_data_job_resharding.cc)
  //
  // Another tensor will replace it; it does not change any more. S201 as in open().
  virtual Status begin_to_leave() { return {}; }
  // The number of vectors with as many elements as a chunk: the parameters, then the optimizer's.
  // For sums of payloads: the residual of their encoding.
  virtual uint32_t state_vectors() const { return 0; }
  // The number of parts that agents may read and write (proto/frame.h, kReadOptimizerState).
  virtual uint32_t optimizer_state_parts() const { return 0; }
  // Whether the chunk has its state. A chunk that moves has it when all parts have arrived.
  virtual bool is_set(uint32_t) const { return true; }
  // The whole state of a chunk that is set.
  virtual ShardChunkState chunk_state(uint32_t) const { return {}; }
  virtual std::span<const float> state_values(uint32_t, uint32_t) const { return {}; }
  virtual Slice state_slice(uint32_t, uint32_t, uint64_t, uint64_t) const { return {}; }
  // Stores a part of it: elements of the chunk from `first` on. Returns true when the chunk is set
  // by that; `answers` then get the answers that its agents wait for.
  virtual bool take_state(uint32_t, const ShardChunkPart&, std::vector<ShardAnswer>&) {
    return false;
  }
  // Whether the transport still has an answer.
  bool sends() const;

  virtual Slice slice(const ShardAnswer& answer) const;
  virtual FrameHeader frame(const ShardAnswer& answer) const;  // without job and epoch

 protected:
  // Each chunk has `buffers` of `buffer_bytes`; 0 bytes: the size of its elements.
  ShardTensor(const ShardPlan& plan, Transport& transport, uint32_t buffers,
              uint64_t buffer_bytes = 0);
  Status open();

  struct Push {
    uint32_t agent = 0;
    uint32_t chunk = 0;
    std::span<const std::byte> payload;
    bool pull_only = false;
    bool has_rate = false;
    float learning_rate = 0;
    bool reads = false;  // a pull of this part of the kept state
    bool writes = false;
    uint32_t part = 0;
  };
  // Checks the rest of a frame whose kind, signature and sender are valid and whose chunk is here.
  virtual Status check_piece(uint32_t agent, const FrameHeader& header) const;
  // Returns whether this frame, which belongs to the agent's next push of this chunk, completes it.
  virtual Result<bool> collect(uint32_t, const FrameHeader&, std::span<const std::byte>) {
    return true;
  }
  // The same for a push that was already applied: its bytes are ignored.
  virtual bool collect_again(uint32_t, const FrameHeader&) { return true; }
  // The frames of the agent's next push will be sent again.
  virtual void forget_collected(uint32_t, uint32_t) {}
  // The last push of `agent` was already answered: sends that answer or a newer one.
  virtual void answer_again(uint32_t, uint32_t, std::vector<ShardAnswer>&) {}
  // Applies the push, which is the agent's next one of this chunk.
  virtual void take(const Push& push, Nanos now, std::vector<ShardAnswer>& answers) = 0;

  uint64_t elements(uint32_t chunk) const { return cut_.range(chunk).elements; }
  uint64_t first_element(uint32_t chunk) const { return cut_.range(chunk).first; }
  std::byte* buffer(uint32_t chunk, uint32_t index) const;
  uint32_t unused_buffer(uint32_t chunk) const;
  void use(uint32_t chunk, uint32_t index) { ++uses(chunk, index); }
  void let_go(uint32_t chunk, uint32_t index) { --uses(chunk, index); }
  // From now until end_answer() the agent's next push waits for the transport.
  void begin_answer(uint32_t agent, uint32_t chunk) {
    turns_[pair(agent, chunk)] = Turn::kTransports;
  }
  void end_answer(uint32_t agent, uint32_t chunk) { turns_[pair(agent, chunk)] = Turn::kAgents; }
  // The same with a buffer that is in use until on_sent().
  void owe(uint32_t agent, uint32_t chunk, uint32_t buffer);
  // Answers the last push of `agent` with this buffer.
  void answer(uint32_t agent, uint32_t chunk, uint32_t buffer, uint32_t staleness,
              std::vector<ShardAnswer>& answers);
  size_t slot(uint32_t chunk) const { return slot_of_[chunk]; }
  uint64_t pushes(uint32_t agent, uint32_t chunk) const { return pushes_[pair(agent, chunk)]; }
  uint32_t agents() const { return plan_.collective.agents; }

 private:
  static constexpr uint32_t kElsewhere = UINT32_MAX;
  enum class Turn : uint8_t { kAgents, kOurs, kTransports };  // who must act next
  enum class Reached : uint8_t { kNot, kPushesAgain, kYes };
  // `next`: checks for the push after the last one.
  Status check(uint32_t agent, const FrameHeader& header, bool next) const;
  size_t buffer_offset(uint32_t chunk, uint32_t index) const;
  uint32_t& uses(uint32_t chunk, uint32_t index) { return uses_[slot(chunk) * buffers_ + index]; }
  size_t pair(uint32_t agent, uint32_t chunk) const { return slot(chunk) * agents() + agent; }

  const ShardPlan plan_;
  const ChunkPlan cut_;
  const uint32_t buffers_;
  const uint64_t buffer_bytes_;
  std::vector<uint32_t> slot_of_;  // by chunk: index among the chunks here
  uint32_t stored_ = 0;
  std::vector<uint32_t> uses_;    // by slot and buffer
  std::vector<uint64_t> pushes_;  // by slot and agent: applied pushes
  std::vector<Turn> turns_;       // by slot and agent
  std::vector<Reached> reached_;  // by slot and agent: whether answers reach it
  bool backup_replica_ = false;
  StagingMemory memory_;
};

// Makes the tensor of summed_tensor.h, payload_tensor.h, parameter_tensor.h, coded_parameters.h or
// whole_parameters.h, by mode and compression. S201 when address space runs out.
Result<std::unique_ptr<ShardTensor>> make_shard_tensor(const ShardPlan& plan, Transport& transport);

}  // namespace gradbus
