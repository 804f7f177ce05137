// Rounds of a job's tensors with a byte budget: exchanges the order of their starts with the other
// agents (start_order.h).
//
// Its frames are credits, with kStartOperation. They travel against the data, so they do not wait
// behind it. Agent 0 opens a link to every other agent for them, and gets one from each.
//
// Engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data_plane/job_links.h"
#include "worker_agent/data/start_order.h"
#include "worker_agent/job/worker_commands.h"

namespace gradbus {

class OrderedStarts {
 public:
  // `job` outlives this object.
  explicit OrderedStarts(const StartJob& job) : job_(job), order_(job.agent_index, job.agents) {}

  // Reserves the frames of a round. D604 when an agent's address is invalid.
  Status add(uint32_t tensor, const StartOrder::Limits& limits, JobLinks& links);
  // It has no round that waits or runs.
  void remove(uint32_t tensor, JobLinks& links);
  bool has(uint32_t tensor) const { return order_.has(tensor); }

  // All ranks of this node have posted the round.
  Status ready(uint32_t tensor, uint64_t round, JobLinks& links);
  // A frame of an agent. Its tensor has a budget, or is not registered here yet.
  Status on_frame(uint32_t from, const FrameHeader& header);
  // The tensor whose round begins now. Ask until there is none.
  std::optional<uint32_t> next(JobLinks& links);
  // A round is over.
  void ended(uint32_t tensor) { order_.ended(tensor); }

 private:
  struct EarlyFrame {
    uint32_t from = 0;
    FrameHeader header;
  };
  // Agents that this one exchanges frames with.
  uint32_t first_peer() const { return order_.leads() ? 1 : 0; }
  uint32_t last_peer() const { return order_.leads() ? job_.agents - 1 : 0; }
  void send(uint32_t peer, const StartOrder::Turn& turn, JobLinks& links) const;
  void count() const;

  const StartJob& job_;
  StartOrder order_;
  std::vector<EarlyFrame> early_;
};

}  // namespace gradbus
