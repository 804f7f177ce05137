// Decides for each tensor of a job whether NCCL carries it between nodes. All nodes use NCCL for a
// tensor, or none does. So every node reports what it supports, and the decision is the same on
// all.
//
// Part of CoordinatorJob; pure. Agents are asked about a tensor when its ranks have registered it.
// The tensor fits if every agent reports that it is on a GPU, in memory that its NCCL process has
// opened. The job has one communicator. It is created for the first tensor that fits, with the id
// that agent 0 has sent. Tensors that fit wait for it. If it cannot be created, the job does not
// try again.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/status.h"

namespace gradbus {

class NcclAgreement {
 public:
  // The message for all agents.
  struct Verdict {
    bool sensible = true;                // else: an answer to nothing
    bool connect = false;                // first, with id()
    std::vector<uint32_t> settled = {};  // tensors
    Status why_not = {};                 // ok: they go by NCCL
  };

  void set_agents(size_t agents) { agents_ = agents; }
  void ask(uint32_t tensor) { asked_[tensor]; }
  // Once per agent and tensor; tensor 0: the communicator. `id`: not empty from agent 0 when
  // it can.
  Verdict report(uint64_t agent, uint32_t tensor, const Status& status, const std::string& id);

  const std::string& id() const { return id_; }
  uint32_t by_nccl() const { return by_nccl_; }
  const Status& why_not() const { return why_not_; }  // the last tensor that did not

 private:
  enum class State : uint8_t { kNone, kConnecting, kConnected, kFailed };
  struct Reports {
    std::set<uint64_t> agents;
    Status first_problem;
  };
  Verdict settle(std::vector<uint32_t> tensors, const Status& why_not);
  Verdict on_connected(uint64_t agent, const Status& status);

  size_t agents_ = 0;
  State state_ = State::kNone;
  std::string id_;
  std::map<uint32_t, Reports> asked_;  // tensors that not all have answered
  std::vector<uint32_t> waiting_;      // for the communicator
  Reports connected_;
  uint32_t by_nccl_ = 0;
  Status why_not_;
};

}  // namespace gradbus
