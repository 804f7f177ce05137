// Compares the registrations of the ranks of one job, name by name. A tensor is ready when every
// rank has registered it with the same spec.
//
// Part of CoordinatorJob; pure. A name may be registered again with another spec. This is a new
// version with a new id, which every rank must register too. Each rank takes part in each attempt
// of a name exactly once. If two specs differ, the attempt keeps its refusal until every rank has
// got it. So a late rank fails like the others, and does not wait for ranks that have failed.
//
// A rank that has unregistered the ready version of a name and registers the name again takes part
// in a new attempt. It waits there until the others have done the same. They can, because
// unregistering never waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/policy/sync_mode.h"
#include "common/status.h"
#include "gradbus/v1/coordinator.pb.h"
#include "server/coordinator/jobs/live_tensors.h"
#include "server/coordinator/members/rank_bits.h"
#include "server/coordinator/planning/planner.h"

namespace gradbus {

class Registrations {
 public:
  struct Answer {
    enum class Kind : uint8_t {
      kWait,          // other ranks are missing
      kReadyForAll,   // this rank was the last: tell every agent
      kReadyForOne,   // it has been ready: tell this rank's agent
      kRefusedToAll,  // the ranks disagree: tell every agent, about `refused`
      kRefusedToOne,  // not allowed, or late to an attempt that failed: tell this rank's agent
    };
    Kind kind = Kind::kWait;
    v1::ReadyTensor ready;
    Status refusal;
    RankSet refused;  // the ranks whose registration this answers
  };

  Registrations(uint32_t world_size, const PlanOptions& options)
      : world_size_(world_size), options_(options), live_(world_size) {}

  // Known when the job starts.
  void set_agents(uint32_t agents) { agents_ = agents; }
  // `period`: of the pattern of their chunks; in equal parts it is their number.
  // `placement`: its number; 0 is that of the job's start.
  void set_shards(uint32_t shards, uint32_t period, uint32_t placement = 0) {
    shards_ = {shards, period};
    placement_ = placement;
    no_single_copies_ = Status();
  }
  // Tensors that need shards are refused with this from here on.
  void refuse_shards(Status why) { no_shards_ = std::move(why); }
  // The same, but for those whose chunks have copies.
  void refuse_single_copies(Status why) { no_single_copies_ = std::move(why); }
  // A live tensor lies on them.
  bool uses_shards() const { return live_.on_shards() > 0; }
  // Where the newest tensors of each name lie: placement, and copies of each chunk.
  std::set<std::pair<uint32_t, uint32_t>> places() const;
  // Of the tensors planned from here on: bytes of a chunk, 0: what the path wants. Returns them as
  // they are: a user's --chunk-bytes stays.
  uint64_t set_chunk_bytes(uint64_t bytes);
  // Of the tensors planned from here on.
  void set_path(const PathFigures& measured) { options_.measured = measured; }

  // The job can have tensors in this mode; else GB-O911, GB-O912 or what refuse_shards() was told.
  Status may_use(const SyncMode& mode, const std::string& who) const;

  // `rank` is below the world size.
  Answer ask(uint32_t rank, const v1::TensorSpec& spec);

  // The rank uses the tensor no more. False: it is none, or the rank has said so before. The ids
  // that no rank uses any more are appended to `retired`, and are forgotten.
  bool release(uint32_t rank, uint32_t id, std::vector<LiveTensors::Tensor>& retired);
  bool release_but_views(uint32_t rank, uint32_t id) { return live_.release_but_views(rank, id); }
  // The rank has left: others need not wait for it.
  void leave(uint32_t rank, std::vector<LiveTensors::Tensor>& retired);

  // The rank has registered `name` and other ranks have not.
  bool waits(uint32_t rank, const std::string& name) const;
  // The ranks missing from the pending attempt of `name`; empty when there is none.
  RankSet missing(const std::string& name) const;
  // A ready tensor of the time before a restart of the coordinator: every rank has it. `shards`: of
  // its placement. GB-D602 for one that cannot be.
  Status take_back(const v1::ReadyTensor& ready, uint32_t shards);
  void use_ids_above(uint32_t id) { next_id_ = std::max(next_id_, id + 1); }
  // Tensors registered from here on do not go by NCCL.
  void no_nccl() { options_.nccl = false; }

  // The ranks that take part in it.
  RankSet waiting(const std::string& name) const;
  // Spec of the pending attempt and of the ready version; null when there is none.
  const v1::TensorSpec* pending_spec(const std::string& name) const;
  const v1::TensorSpec* ready_spec(const std::string& name) const;
  // Forgets the pending attempt of `name`; its ranks have been told.
  void drop_pending(const std::string& name);

  size_t ready_count() const { return live_.count(); }
  // Its ranks' reason for how they exchange the ready version of `name`, for a person.
  void explain(const std::string& name, std::string reason);
  // At most `limit` ready tensors, in no order.
  struct Listed {
    const v1::ReadyTensor* ready = nullptr;
    std::string_view why;     // of its plan
    std::string_view reason;  // of its ranks; may be empty
  };
  std::vector<Listed> list(size_t limit) const;
  void clear() { names_.clear(), live_ = LiveTensors(world_size_); }

 private:
  struct Attempt {
    v1::TensorSpec spec;
    RankBits asked;
    Status refusal;  // not ok: this attempt has failed
  };
  struct Name {
    std::optional<v1::ReadyTensor> ready;
    uint32_t replicas = 1;          // of ready, on shards
    std::string why;                // of ready's plan
    std::string reason = {};        // of its ranks, for ready
    std::vector<Attempt> attempts;  // at most one pending, and that is the last
  };

  Status check(const v1::TensorSpec& spec) const;
  Status check_mode(const v1::TensorSpec& spec) const;
  Status check_capacity(const std::string& name) const;
  Answer answer(uint32_t rank, const v1::TensorSpec& spec);
  Answer answer_ready(Name& name, uint32_t rank);
  Answer begin(Name& name, uint32_t rank, const v1::TensorSpec& spec);
  Answer take_part(Name& name, size_t index, uint32_t rank, const v1::TensorSpec& spec);
  Answer repeat(Name& name, uint32_t rank, const v1::TensorSpec& spec);
  Answer disagree(Name& name, Attempt& attempt, uint32_t rank, const v1::TensorSpec& spec);
  TensorPlan plan(const v1::TensorSpec& spec) const;
  bool may_go_by_nccl(const v1::TensorSpec& spec) const;
  void place(Name& name, v1::ReadyTensor& ready);
  Answer finish(Name& name);
  void forget_retired(const LiveTensors::Tensor& tensor);
  void forget_answered(Name& name);
  void forget_empty(const std::string& name);
  const Attempt* pending(const std::string& name) const;

  uint32_t world_size_;
  PlanOptions options_;
  const bool chunks_are_given_ = options_.chunk_bytes > 0;  // by the user
  uint32_t agents_ = 1;
  ShardCount shards_;
  uint32_t placement_ = 0;
  Status no_shards_;
  Status no_single_copies_;
  LiveTensors live_;
  uint32_t next_id_ = 1;
  uint32_t pending_count_ = 0;
  std::unordered_map<std::string, Name> names_;
};

}  // namespace gradbus
