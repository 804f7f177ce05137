// One registered tensor as this rank sees it: its local reduction, its rank buffer, and the round
// it is in.
//
// The owner thread calls start, test and wait; several tensors may be used by several threads.
#pragma once

#include <atomic>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/fd.h"
#include "common/status.h"
#include "proto/attach.h"
#include "proto/numbers.h"
#include "proto/shm_layout.h"
#include "shared_memory/local_reduction.h"
#include "shared_memory/tensor_spec.h"

namespace gradbus {

class Session;

// The time of a wait over all calls. A caller may wait in slices, as Python does to handle Ctrl-C,
// and the agent must still get a report. A wait that advances is not a stall, and a pause between
// two looks is not a wait. Both restart the time of the stall.
struct WaitClock {
  Nanos began = 0;     // 0: not waited for yet
  Nanos advanced = 0;  // since then nothing has moved
  Nanos reported = 0;
  Nanos looked = 0;
  uint64_t advances = 0;  // of the session, at the last look
  void begin(Nanos now, uint64_t advances_now) {
    if (began != 0) return;
    began = advanced = reported = looked = now;
    advances = advances_now;
  }
  void look(Nanos now, uint64_t advances_now) {
    const bool paused = now - looked > kPauseMax;
    if (std::exchange(advances, advances_now) != advances_now || paused) advanced = reported = now;
    looked = now;
  }

  static constexpr Nanos kPauseMax = kSecond;  // a wait looks around every 50 ms
};

// Memory of a GPU as it came from the agent.
struct SharedDeviceMemory {
  DeviceMemory memory;
  Fd descriptor;  // of DeviceSharing::kDescriptor
};
// Takes its descriptor, if it has one, from those of the packet. S211 for values no agent sends.
Result<SharedDeviceMemory> take_device_memory(const DeviceMemory& memory, std::vector<Fd>& fds);

// DeviceRankBuffer (proto/attach.h) in the process that received it.
struct RankBuffer {
  SharedDeviceMemory memory;
  DeviceShare ready;
  DeviceShare done;
};

class Tensor {
 public:
  Tensor(Session& session, TensorSpec spec, uint32_t id, const LocalReduction& local_reduction);

  const TensorSpec& spec() const { return spec_; }
  uint32_t id() const { return id_; }
  Session& session() { return session_; }
  LocalReduction& local_reduction() { return local_reduction_; }
  uint64_t round() const { return round_; }
  bool in_flight() const { return in_flight_; }
  // Kinds that reduce: this rank's buffer. Others: the first block that this rank sends
  // (all-to-all: of world_size), or block 0.
  std::byte* data();

  // Where this rank's elements are on its GPU, if they are there; else the reason why not, or "" if
  // it was not requested.
  const std::optional<RankBuffer>& device_rank_buffer() const { return device_rank_buffer_; }
  const std::string& why_not_on_device() const { return why_not_on_device_; }
  void put_on_device(RankBuffer rank_buffer) { device_rank_buffer_ = std::move(rank_buffer); }
  void say_why_not_on_device(std::string why) { why_not_on_device_ = std::move(why); }

  // Posts the next round; the data is in place. BUSY (O905) while one is in flight.
  Status start(uint64_t bytes = 0) { return start(bytes, PsRequest::kNone); }
  Status start_step() { return start(); }
  // If shards hold the parameters: a round that makes no step and returns them. Else O900.
  Status start_pull();
  // The same for a part of the optimizer state: reads it, or replaces it by that of rank 0's node.
  Status start_optimizer_state(PsRequest kind, uint32_t part);
  // 0: shards have no state that can be read.
  uint32_t optimizer_state_parts() const;

  // ---- the residual state of the compression (f32 all-reduces; else O900)
  // A round that exchanges nothing. Every rank of the node starts it and waits for it. To read, the
  // data becomes this rank's share of the state. To write, the state becomes the sum of the shares
  // in the data. If nothing is compressed, a written residual is added to the next round's input,
  // so it is not lost.
  Status start_residual_state(SubmissionKind kind, ResidualStatePart part);
  // Multiplies the residual when the next round begins. O900 unless finite and above 0.
  Status scale_residual_state(double factor);
  // Sets the number of rounds already done, for the codec's warm-up.
  void continue_warm_up(uint64_t rounds) { warm_up_round_ = rounds + 1; }
  // If shards hold the parameters: the rate from the next round on. Initially it is the mode's.
  void set_learning_rate(double rate) { learning_rate_ = rate, has_rate_ = true; }
  // If shards hold the parameters: steps of other nodes between the last two of this node.
  uint64_t staleness() const { return staleness_.load(std::memory_order_relaxed); }
  // One non-blocking attempt, which may reduce chunks. True when the round is over, or failed.
  bool attempt();
  // attempt() until the round is over or the deadline (P110). The result is in the rank buffer.
  Status wait(Nanos timeout);
  // After attempt() returned true: returns the status of the round and closes it.
  Status take_result();

  // Broadcast and all-gather: all ranks of this node have copied the last round from the shared
  // rank buffer, so it may be written.
  bool writable() const { return local_reduction_.all_consumed(round_); }

  // A stream posts and consumes on the local reduction itself, a round per chunk; here it reports
  // how many.
  void skip_rounds(uint64_t rounds) { round_ += rounds; }

  // Session, from the completion ring.
  void complete(uint64_t round, Code code, uint64_t staleness);

 private:
  Status begin_round();
  Status start(uint64_t bytes, PsRequest pull, uint32_t optimizer_state_part = 0);
  void post(uint64_t bytes);
  void take_residual_state_alone(SubmissionKind kind, ResidualStatePart part);
  std::span<float> elements();
  bool brings_gradient(PsRequest pull) const;
  void add_carried();
  bool finished();
  bool attempt_local();
  uint32_t reduce_chunks(uint32_t chunks_max);

  Session& session_;
  const TensorSpec spec_;
  const uint32_t id_;
  LocalReduction local_reduction_;
  std::optional<RankBuffer> device_rank_buffer_;
  std::string why_not_on_device_;
  uint64_t round_ = 0;
  bool in_flight_ = false;
  WaitClock clock_;                     // of this round
  Nanos traced_start_ = 0;              // of this round; 0: the job was not traced
  Nanos traced_posts_ = 0;              // when it saw the last post of its node; 0: not yet
  double residual_scale_ = 1;           // of the next round
  uint64_t warm_up_round_ = 0;          // the same; 0: the one after the last
  std::vector<float> carried_;          // residual that was written and is in no round yet
  std::atomic<uint64_t> completed_{0};  // remote local reductions: last round the agent completed
  std::atomic<Code> code_{Code::kOk};
  std::atomic<uint64_t> staleness_{0};
  double learning_rate_ = 0;
  bool has_rate_ = false;
};

}  // namespace gradbus
