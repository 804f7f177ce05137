// What one parameter-server shard does for one tensor: it takes the agents' pushes of the chunks
// that it holds (proto/placement.h) and says whom to answer with which bytes. Each chunk is on its
// own. Decisions take no clock but the one they are given.
//
// A push is taken at once, so receive buffers do not wait here and agents need no credits. One
// exception: the push after an answer that the transport still holds waits for its on_sent(), which
// needs nothing from anybody, for the agent has received that answer.
//
// BUFFERS. An answer is sent from the memory it was made in, no copy. So a chunk has a few buffers,
// each counted by what uses it; the next sum or the next parameters are made in an unused one.
//
// COPIES (mode option replicas=2). What a tensor becomes follows from its pushes and deadlines in
// their order, chunk by chunk. A second object of this class on another shard, the shadow, is told
// of the same in the same order, so it has the same bits. Its answers reach nobody. When the shard
// it copies is lost each agent pushes again what it has no answer to, and is answered from then on:
// come_over() says whether the shadow has taken that push already, else on_push() does.
//
// A push of several frames is in the order of pushes where its last frame has come, whichever that
// is: frames before it change nothing that others see, so a shadow may have them in any order.
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
#include "proto/frame.h"
#include "proto/shard_snapshot.h"
#include "worker_agent/shard/shard_plan.h"
#include "worker_agent/staging_memory.h"

namespace gradbus {

// A chunk on its way back to an agent.
struct ShardAnswer {
  uint32_t agent = 0;
  uint32_t chunk = 0;
  uint64_t round = 0;      // of that agent
  uint32_t staleness = 0;  // steps of others between what the agent knew and its own
  uint32_t buffer = 0;
  uint64_t bytes = 0;
};

// What a chunk has made of its pushes, vector by vector.
struct KeptChunk {
  uint64_t steps = 0;
  float learning_rate = 0;
};
struct KeptPart {
  uint32_t vector = 0;
  uint64_t first = 0;
  std::span<const float> values;
  KeptChunk of;
};

class ShardTensor {
 public:
  virtual ~ShardTensor() = default;
  ShardTensor(const ShardTensor&) = delete;
  ShardTensor& operator=(const ShardTensor&) = delete;

  const ShardPlan& plan() const { return plan_; }
  size_t chunks_held() const { return held_; }
  bool holds(uint32_t chunk) const {
    return chunk < slot_of_.size() && slot_of_[chunk] != kElsewhere;
  }
  // That may be under way to one agent.
  virtual size_t answers_max() const { return held_; }
  // The last answer of this chunk to this agent is still the transport's: on_push() after
  // on_sent().
  bool must_wait(uint32_t agent, const FrameHeader& header) const;
  // The push of `agent` in `payload`, whose header was checked as a frame. kCorrupt, before
  // anything is written, when it cannot be. `answers` get what is to be sent now.
  Status on_push(uint32_t agent, const FrameHeader& header, std::span<const std::byte> payload,
                 Nanos now, std::vector<ShardAnswer>& answers);
  // The same in two steps, for a push that is to be taken later. True: it is whole with this frame,
  // by which it is taken; until then the agent may not push this chunk again.
  Result<bool> admit(uint32_t agent, const FrameHeader& header, std::span<const std::byte> payload);
  void take_admitted(uint32_t agent, const FrameHeader& header, std::span<const std::byte> payload,
                     Nanos now, std::vector<ShardAnswer>& answers);
  // The push that this frame is of was taken whole.
  bool has_taken(uint32_t agent, const FrameHeader& header) const {
    return pushes(agent, chunk_of(header)) == header.step;
  }
  // Of a frame, also of one that was not checked: whether it is here, holds() says.
  virtual uint32_t chunk_of(const FrameHeader& header) const { return header.chunk; }
  // The transport has given the bytes of this answer back.
  virtual void on_sent(const ShardAnswer& answer);
  // What time alone decides: `due` gets the chunks whose open step has reached its deadline, each
  // once. Returns when to ask next, 0 for never.
  virtual Nanos deadlines(Nanos, std::vector<uint32_t>&) { return 0; }
  // Steps that this chunk has made; a deadline is of the one after them.
  virtual uint64_t steps_of(uint32_t) const { return 0; }
  // Closes the step if it still is the open one. Of a chunk that is here.
  virtual void on_deadline(uint32_t, uint64_t, std::vector<ShardAnswer>&) {}

  // ---- copies
  // Before the first push: from here on answers reach only agents that have come over.
  void begin_as_shadow() {
    shadow_ = true;
    reached_.assign(reached_.size(), Reached::kNot);
  }
  bool is_shadow() const { return shadow_; }
  bool reaches(uint32_t agent, uint32_t chunk) const {
    return reached_[pair(agent, chunk)] == Reached::kYes;
  }
  // A frame of the first push of `agent` of this chunk after the loss. True: that was taken
  // already, and is not to be taken again; when it is whole, and not before, `answers` get its
  // answer, if there is one by now.
  Result<bool> come_over(uint32_t agent, const FrameHeader& header,
                         std::vector<ShardAnswer>& answers);

  // ---- what is kept between rounds: nothing, unless the mode holds parameters
  // The chunk as it is now, for a snapshot; false while it has nothing. `values` is overwritten.
  virtual bool save(uint32_t, SnapshotPiece&, std::vector<float>&) const { return false; }
  // Before the first push; by slot.
  virtual void restore(const std::vector<RestoredChunk>&) {}

  // ---- what moves with the job's shards (shard_job_moves.cc)
  // Another one is to take its place: nothing changes it any more. S201 as open().
  virtual Status begin_to_leave() { return {}; }
  // Vectors of as many elements as a chunk: its parameters, then the optimizer's; of sums of
  // payloads what their encoding has left out.
  virtual uint32_t vectors_kept() const { return 0; }
  // That agents may read and write (proto/frame.h, kReadKept).
  virtual uint32_t parts_kept() const { return 0; }
  // The chunk has what is kept; one that has moved has not until all of it is here.
  virtual bool is_set(uint32_t) const { return true; }
  // All of it, of a chunk that is set.
  virtual KeptChunk kept(uint32_t) const { return {}; }
  virtual std::span<const float> kept_values(uint32_t, uint32_t) const { return {}; }
  virtual Slice kept_slice(uint32_t, uint32_t, uint64_t, uint64_t) const { return {}; }
  // A part of it comes: elements of the chunk from `first` on. True: the chunk is set from here on,
  // and `answers` get what its agents wait for.
  virtual bool take_kept(uint32_t, const KeptPart&, std::vector<ShardAnswer>&) { return false; }
  // Some answer is the transport's.
  bool sends() const;

  virtual Slice slice(const ShardAnswer& answer) const;
  virtual FrameHeader frame(const ShardAnswer& answer) const;  // but for job and epoch

 protected:
  // `buffers` of a chunk, of `buffer_bytes` each; 0: what its elements take.
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
    bool reads = false;  // a pull of this part of what is kept
    bool writes = false;
    uint32_t part = 0;
  };
  // A frame whose kind, signature and sender are right and whose chunk is here: whether the rest of
  // it can be.
  virtual Status check_piece(uint32_t agent, const FrameHeader& header) const;
  // Whether this frame, the agent's next one of this chunk, makes a push whole.
  virtual Result<bool> collect(uint32_t, const FrameHeader&, std::span<const std::byte>) {
    return true;
  }
  // The same of a push that was taken: its bytes count for nothing.
  virtual bool collect_again(uint32_t, const FrameHeader&) { return true; }
  // What has come of the agent's next push will come anew.
  virtual void forget_collected(uint32_t, uint32_t) {}
  // The last push of `agent` was answered: the answer once more, or a newer one.
  virtual void answer_again(uint32_t, uint32_t, std::vector<ShardAnswer>&) {}
  // The push is the agent's next one of this chunk.
  virtual void take(const Push& push, Nanos now, std::vector<ShardAnswer>& answers) = 0;

  uint64_t elements(uint32_t chunk) const { return cut_.range(chunk).elements; }
  uint64_t first_element(uint32_t chunk) const { return cut_.range(chunk).first; }
  std::byte* buffer(uint32_t chunk, uint32_t index) const;
  uint32_t unused_buffer(uint32_t chunk) const;
  void use(uint32_t chunk, uint32_t index) { ++uses(chunk, index); }
  void let_go(uint32_t chunk, uint32_t index) { --uses(chunk, index); }
  // From here until the end the next push of `agent` waits for the transport.
  void begin_answer(uint32_t agent, uint32_t chunk) {
    turns_[pair(agent, chunk)] = Turn::kTransports;
  }
  void end_answer(uint32_t agent, uint32_t chunk) { turns_[pair(agent, chunk)] = Turn::kAgents; }
  // The same with a buffer in use, until on_sent().
  void owe(uint32_t agent, uint32_t chunk, uint32_t buffer);
  // Answers the last push of `agent` with this buffer.
  void answer(uint32_t agent, uint32_t chunk, uint32_t buffer, uint32_t staleness,
              std::vector<ShardAnswer>& answers);
  size_t slot(uint32_t chunk) const { return slot_of_[chunk]; }
  uint64_t pushes(uint32_t agent, uint32_t chunk) const { return pushes_[pair(agent, chunk)]; }
  uint32_t agents() const { return plan_.collective.agents; }

 private:
  static constexpr uint32_t kElsewhere = UINT32_MAX;
  enum class Turn : uint8_t { kAgents, kOurs, kTransports };  // whose move it is
  enum class Reached : uint8_t { kNot, kPushesAgain, kYes };
  // `next`: of the push after the last one.
  Status check(uint32_t agent, const FrameHeader& header, bool next) const;
  size_t buffer_offset(uint32_t chunk, uint32_t index) const;
  uint32_t& uses(uint32_t chunk, uint32_t index) { return uses_[slot(chunk) * buffers_ + index]; }
  size_t pair(uint32_t agent, uint32_t chunk) const { return slot(chunk) * agents() + agent; }

  const ShardPlan plan_;
  const ChunkPlan cut_;
  const uint32_t buffers_;
  const uint64_t buffer_bytes_;
  std::vector<uint32_t> slot_of_;  // by chunk: its place among those that are here
  uint32_t held_ = 0;
  std::vector<uint32_t> uses_;    // by slot and buffer
  std::vector<uint64_t> pushes_;  // by slot and agent: taken
  std::vector<Turn> turns_;       // by slot and agent
  std::vector<Reached> reached_;  // by slot and agent: answers do
  bool shadow_ = false;
  StagingMemory memory_;
};

// summed_tensor.h, payload_tensor.h, parameter_tensor.h, coded_parameters.h or whole_parameters.h,
// by mode and compression. S201 when there is no address space.
Result<std::unique_ptr<ShardTensor>> make_shard_tensor(const ShardPlan& plan, Transport& transport);

}  // namespace gradbus
