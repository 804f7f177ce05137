// One job, from its first rank's JoinJob to its end: a pure state machine that writes to an Outbox.
//
//   joining --all ranks are there--> running --all ranks left--> done
//      |                                |
//      +------- timeout, a rank goes, stopped, lost, mismatch ---> failed
//
// A job that fails while joining sends JoinRefused to every rank. A job that fails later sends
// JobFailed to each agent, and a job that is done sends JobEnded. An ended job only reports its
// status. Coordinator routes messages here after it has found the job and the sender. The job
// checks that the sender owns the rank in the message.
//
// Handlers return false for an invalid message, which Coordinator counts. They accept and ignore a
// message that was sent before the answer arrived.
#pragma once

#include <cstdint>
#include <deque>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "server/coordinator/jobs/coordinator_options.h"
#include "server/coordinator/jobs/outbox.h"
#include "server/coordinator/jobs/registrations.h"
#include "server/coordinator/jobs/stalls.h"
#include "server/coordinator/members/membership.h"
#include "server/coordinator/members/user.h"
#include "server/coordinator/planning/nccl_agreement.h"
#include "server/coordinator/planning/shard_list.h"
#include "server/coordinator/planning/shard_placement.h"

namespace gradbus {

struct ReturningJob;
struct ReturningNode;

inline constexpr size_t kNcclIdBytesMax = 128;
inline constexpr Nanos kStallShown = 2500 * kMillisecond;  // notices are renewed every second
inline constexpr size_t kModeChangesShown = 16;
inline constexpr size_t kModeChangesMax = 10'000;  // of a job: its ranks remember them

class CoordinatorJob {
 public:
  enum class State : uint8_t { kJoining, kRunning, kFailed, kDone };
  struct Identity {
    std::string name;
    uint64_t id = 0;
    uint64_t link_key = 0;
    User owner = {};
    std::string secret = {};  // 32 random bytes for the owner's ranks
  };

  // `outbox` outlives the job. world_size was checked.
  CoordinatorJob(Identity identity, uint32_t world_size, const CoordinatorOptions& options,
                 Nanos now, Outbox* outbox);
  CoordinatorJob(const CoordinatorJob&) = delete;
  CoordinatorJob& operator=(const CoordinatorJob&) = delete;

  const Identity& identity() const { return identity_; }
  State state() const { return state_; }
  bool live() const { return state_ == State::kJoining || state_ == State::kRunning; }
  Nanos ended_at() const { return ended_at_; }
  const Membership& membership() const { return membership_; }

  // coordinator_job_start.cc. A rank that may not join gets an answer; other ranks are not
  // affected. `shards`: the current shards, which the job uses when it starts.
  void join(uint64_t agent, const AgentInfo& info, const v1::JoinJob& message,
            const AgentInfos& shards, Nanos now);
  const ShardList& shards() const { return shards_; }

  // coordinator_job_return.cc. Instead of join(): the job runs already, its nodes have announced
  // it.
  void take_back(const ReturningJob& from, Nanos now);

  // coordinator_job_shards.cc. A shard has attached. A running job with tensors on shards uses it
  // from its ranks' next fence on.
  void shard_attached(uint64_t shard, const AgentInfo& info, Nanos now);

  // GB-J408 unless `caller` is the job's owner.
  Status check_owner(const User& caller, const std::string& wish) const;

  // What is known of the paths between its agents by now.
  void set_path(const PathFigures& measured) { registrations_.set_path(measured); }

  // coordinator_job_work.cc
  bool register_tensors(uint64_t agent, const v1::RegisterTensors& message, Nanos now);
  bool unregister_tensors(uint64_t agent, const v1::UnregisterTensors& message);
  bool rank_blocked(uint64_t agent, const v1::RankBlocked& message, Nanos now);
  bool progress_report(uint64_t agent, const v1::ProgressReport& message, Nanos now);
  bool count(uint64_t agent, const v1::JobCounters& counters, Nanos now);
  bool nccl_report(uint64_t agent, const v1::NcclReport& message);

  // Changes the mode of the parameters whose names match `group`, from the ranks' next fence on.
  Status change_mode(const v1::ChangeModeRequest& request, Nanos now);

  // Of tensors that are registered from here on; returns the size that they get.
  uint64_t set_chunk_bytes(uint64_t bytes) { return registrations_.set_chunk_bytes(bytes); }
  // What ranks say about a ready tensor, for its status.
  void explain(const std::string& tensor, std::string reason) {
    registrations_.explain(tensor, std::move(reason));
  }
  // The newest of all agents; null: it was not measured.
  const v1::Fidelity* fidelity(const std::string& tensor) const;

  // coordinator_job_end.cc. `why`: "node-b (pid 9) closed its connection, last heard 0.2 s ago".
  bool rank_left(uint64_t agent, const v1::RankLeft& message, Nanos now);
  bool agent_failure(uint64_t agent, const v1::JobFailure& message, Nanos now);
  void agent_lost(uint64_t agent, const std::string& why, Nanos now);
  void fail(Status status, Nanos now);

  // Start timeout and stall verdicts; about ten times a second.
  void tick(Nanos now);

  // coordinator_job_status.cc. Lists at most `tensors_max` tensors.
  v1::JobStatus describe(Nanos now, size_t tensors_max) const;
  struct Figures {
    size_t ranks = 0;  // joined
    size_t slow_ranks = 0;
    uint64_t late_ns = 0;  // of the latest rank
    bool stalled = false;
  };
  Figures figures(Nanos now) const;

 private:
  struct Answers;

  void add_shards(v1::JobStatus& status) const;
  void add_staleness(v1::JobStatus& status) const;
  Status may_join(uint64_t agent, const AgentInfo& info, const v1::JoinJob& message) const;
  void start(const AgentInfos& shards, Nanos now);
  Result<std::string> choose_transport() const;
  v1::JobStarted started_message() const;
  void check_start_timeout(Nanos now);

  // coordinator_job_return.cc
  void take_membership(const ReturningJob& from);
  void take_placements(const ReturningJob& from);
  Status take_tensors(const ReturningJob& from);
  bool concerns(const v1::ReadyTensor& ready, const ReturningNode& node, uint32_t index) const;
  void tell_retired_again(uint64_t node, uint32_t tensor);
  void tell_missed(const ReturningJob& from, const v1::ReadyTensor& ready,
                   const std::set<uint64_t>& known_by, bool unsettled);

  void answer(uint64_t agent, uint32_t rank, const v1::TensorSpec& spec, Answers& answers);
  v1::CoordinatorMessage refused_message(const std::string& name, const Status& status,
                                         const RankSet& ranks) const;
  void ask_progress(const v1::RankBlocked& message);
  void notify_stall(const std::string& tensor, uint64_t round, Nanos now);
  void apply(const Stalls::Verdict& verdict, Nanos now);
  void change_late_mode(Nanos now);
  bool all_sync() const;
  void change_back(Nanos now);

  void tell_retired(const std::vector<LiveTensors::Tensor>& retired);
  void leave_cleanly(uint32_t rank, Nanos now);
  AgentInfo* find_agent_info(uint64_t agent);  // of an agent or a shard
  void shard_lost(uint64_t shard, AgentInfo& info, const std::string& why, Nanos now);
  Status may_go_on_without(uint32_t shard, const std::string& lost) const;
  // coordinator_job_shards.cc
  struct ShardMap {
    ShardPlacement of;
    std::vector<uint32_t> members;  // indexes of shards
  };
  void place_anew(const std::string& why);
  v1::CoordinatorMessage shards_changed() const;
  void ask_to_move();
  // Of `members`, by their places; -1: the shard is none of them.
  static int place_of(uint32_t shard, const std::vector<uint32_t>& members);
  const std::string& shard_name(uint32_t index) const { return shards_.at(index).name; }
  uint32_t placement_in_use() const;
  std::string tensors_on_shards() const;  // their names, the first few
  void tell_everyone(const v1::CoordinatorMessage& message);
  void refuse_all_joined(const Status& status);
  void tell_failed(const Status& status);
  void end(State state, Nanos now);
  void tell_event(EventKind kind, const std::string& text, Nanos now);
  std::string title() const { return "job " + in_quotes(identity_.name); }

  const Identity identity_;
  const CoordinatorOptions options_;
  Outbox* const outbox_;
  const Nanos created_at_;
  State state_ = State::kJoining;
  Nanos ended_at_ = 0;
  uint64_t start_timeout_ms_ = 0;
  std::string transport_;
  Status error_;
  std::string stall_;
  Nanos stall_at_ = 0;
  Membership membership_;
  ShardList shards_;
  std::vector<ShardMap> shard_maps_;  // the last one: of what is registered from now on
  std::set<uint64_t> shards_told_;    // of the job
  Nanos place_at_ = 0;                // when new shards are taken; 0: there are none
  uint32_t moves_asked_ = 0;          // of the ranks
  uint32_t placement_at_end_ = 0;     // of the tensors that had moved last
  Registrations registrations_;
  NcclAgreement nccl_;
  Stalls stalls_;
  LateRule late_rule_;
  LossRule loss_rule_;
  struct ModeChange {
    std::string group;
    std::string mode;
    std::string reason;
    Nanos at = 0;
  };
  std::deque<ModeChange> mode_changes_;  // the last kModeChangesShown
  size_t mode_changes_made_ = 0;
};

// An agent's own sentence when it has the product's form.
Status repeat_failure(const AgentInfo& info, const v1::Error& error);

// `join`: the agent's number of it.
void refuse_join(Outbox& outbox, uint64_t agent, const std::string& job, uint32_t rank,
                 uint64_t join, const Status& status);

}  // namespace gradbus
