// Jobs that run on nodes and that this coordinator does not know, because it was restarted.
//
// Every node announces its jobs after its Welcome (RunningJob). A job is complete when all of its
// agents and shards have announced it. The coordinator then takes the job back. Until then it
// stores messages about the job. A job is lost if a node is missing at the deadline, or if its
// nodes contradict each other. All nodes that announce it, also later, get the reason.
//
// Part of Coordinator; pure. An announcement is not trusted: it is checked before it is stored.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "gradbus/v1/coordinator.pb.h"
#include "proto/return_margin.h"
#include "server/coordinator/members/membership.h"

namespace gradbus {

inline constexpr size_t kReturningJobsMax = 1024;
inline constexpr size_t kReturnMessagesMax = 65'536;  // kept for one job
inline constexpr size_t kLostReturnsMax = 256;        // that are remembered

// What one node has said of a job.
struct ReturningNode {
  uint64_t agent = 0;
  AgentInfo info;
  std::map<uint32_t, v1::RunningRank> ranks;      // by rank
  std::map<uint32_t, v1::RunningTensor> tensors;  // by id
  uint32_t tensor_last = 0;                       // the highest id that it was told of
  bool whole = false;                             // all parts have come
};

struct ReturningJob {
  uint64_t id = 0;
  v1::JobStarted started;  // as an agent has it; without a secret while only shards have announced
  std::map<uint32_t, ReturningNode> agents;  // by index
  std::map<uint32_t, ReturningNode> shards;  // the same
  v1::ShardsChanged changed;                 // the newest; without shards: there was none
  struct Kept {
    uint64_t agent = 0;
    v1::AgentMessage message;
  };
  std::deque<Kept> kept;
  Nanos deadline = 0;
  Status problem;  // not ok: it is lost

  const std::string& name() const { return started.job(); }
  bool knows_secret() const { return !agents.empty(); }
  uint32_t shard_count() const;
  bool has_all_agents() const;
  bool whole() const;
  bool has(uint64_t agent) const;
  std::vector<uint64_t> announcers() const;
  std::string missing() const;  // "agent node-b, shard shard-0"
};

class ReturningJobs {
 public:
  // A part of what a node says of a job. An error for one that may not speak of it: the others'
  // announcements count as before.
  Status add(uint64_t agent, const AgentInfo& info, const v1::RunningJob& part, Nanos deadline);

  bool empty() const { return jobs_.empty(); }
  bool has(uint64_t job) const { return jobs_.contains(job); }
  bool has_name(const std::string& name) const;
  // By name; null: none. Its problem may be set.
  ReturningJob* find(const std::string& name);
  // True: the message is about a job that returns, and is kept or of no use.
  bool keep(uint64_t agent, const v1::AgentMessage& message);
  // The agent is gone, with `why` as its sentence.
  void lose(uint64_t agent, const std::string& why);

  // Those that wait no longer: whole, lost, or their time is up.
  std::vector<ReturningJob> take(Nanos now);

  // Why a job was lost before; ok: it was not.
  Status lost_before(uint64_t job) const;
  void remember_lost(uint64_t job, const Status& why);

 private:
  std::map<uint64_t, ReturningJob> jobs_;
  std::deque<std::pair<uint64_t, Status>> lost_;
};

// Of any message that is about one job; 0: of none.
uint64_t job_of(const v1::AgentMessage& message);

}  // namespace gradbus
