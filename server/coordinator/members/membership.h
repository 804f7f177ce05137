// The members of a job: its ranks, and the agents through which they attached.
//
// Part of CoordinatorJob; pure. Ranks are added one by one, so memory grows with the ranks that
// joined, not with a world size from a message. A rank is never removed. If it left or was lost, it
// is marked as such.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/clock.h"
#include "gradbus/v1/coordinator.pb.h"
#include "server/coordinator/members/rate_window.h"
#include "server/coordinator/members/text.h"

namespace gradbus {

// The fields of an agent's Hello that a job stores.
struct AgentInfo {
  std::string name;
  std::map<std::string, std::string> addresses;  // transport -> address
  double reduce_ns = 0;                          // 0: not known
  uint64_t bits_per_s = 0;                       // of its network interface, told; 0: not known
  bool shard = false;                            // a parameter-server shard: no ranks
  bool lost = false;
  uint64_t sent_bytes = 0;
  uint64_t received_bytes = 0;
  uint64_t uncompressed_bytes = 0;
  uint64_t compressed_bytes = 0;
  std::map<std::string, v1::Fidelity> fidelity;    // by tensor: the last
  std::map<std::string, v1::Staleness> staleness;  // the same
};

using AgentInfos = std::map<uint64_t, AgentInfo>;  // by agent id

struct RankRecord {
  enum class State : uint8_t { kJoined, kLeft, kLost };
  State state = State::kJoined;
  uint64_t agent = 0;
  uint64_t pid = 0;
  uint64_t join = 0;  // v1::JoinJob's; 0 after a restart of the coordinator
  Nanos left_at = 0;
  v1::RankCounters counters;
  Nanos counted_at = 0;
  RateWindow rates;
};

class Membership {
 public:
  explicit Membership(uint32_t world_size) : world_size_(world_size) {}

  void add(uint32_t rank, uint64_t agent, const AgentInfo& info, uint64_t pid);

  uint32_t world_size() const { return world_size_; }
  bool complete() const { return ranks_.size() == world_size_; }
  const std::map<uint32_t, RankRecord>& ranks() const { return ranks_; }
  const AgentInfos& agents() const { return agents_; }

  RankRecord* find(uint32_t rank);
  const RankRecord* find(uint32_t rank) const;
  AgentInfo* find_agent(uint64_t agent);
  // Whether the rank attached through this agent and has not left.
  bool owns(uint64_t agent, uint32_t rank) const;
  bool has_left(uint32_t rank) const;

  RankSet joined() const;
  RankSet joined_through(uint64_t agent) const;
  // The ranks that attached through this agent, also those that have left.
  size_t added_through(uint64_t agent) const;
  RankSet absent() const;  // never came

  // "node-b"
  const std::string& agent_name(uint32_t rank) const;
  // "rank 3 (node-b, pid 77)"
  std::string describe_rank(uint32_t rank) const;
  // "ranks 2, 3 (node-b), rank 5 (node-c)", by node, at most kListedMax nodes.
  std::string places(const RankSet& ranks) const;

 private:
  uint32_t world_size_;
  std::map<uint32_t, RankRecord> ranks_;
  AgentInfos agents_;
  std::map<uint64_t, size_t> added_;  // by agent
};

}  // namespace gradbus
