// Paths between agents: who is asked to measure one, and which jobs learn the figures.
#include <algorithm>

#include "server/coordinator/coordinator.h"

namespace gradbus {
namespace {

// The same choice as a job of the two would make (coordinator_job_start.cc): tcp, else the first in
// common.
std::string shared_address(const AgentInfo& from, const AgentInfo& to) {
  const auto reaches = [&](const auto& entry) { return from.addresses.contains(entry.first); };
  const auto tcp = to.addresses.find("tcp");
  if (tcp != to.addresses.end() && reaches(*tcp)) return tcp->second;
  const auto first = std::find_if(to.addresses.begin(), to.addresses.end(), reaches);
  return first == to.addresses.end() ? std::string() : first->second;
}

}  // namespace

std::set<uint64_t> Coordinator::busy_agents() const {
  std::set<uint64_t> busy;
  for (const auto& [id, job] : jobs_) {
    if (job->state() != CoordinatorJob::State::kRunning) continue;
    for (const auto& [agent, info] : job->membership().agents()) busy.insert(agent);
  }
  return busy;
}

void Coordinator::measure_next_path(Nanos now) {
  if (!paths_.may_begin(now)) return;
  const auto probe = paths_.next(busy_agents(), now);
  if (!probe) return;
  const auto& [agent, peer] = probe->pair;
  v1::CoordinatorMessage message;
  message.mutable_measure_path()->set_probe_id(probe->id);
  message.mutable_measure_path()->set_address(
      shared_address(agents_.at(agent).info, agents_.at(peer).info));
  outbox_.send(agent, std::move(message));
}

// Tensors that a job has planned keep their plan; those to come get the new figures.
void Coordinator::path_measured(uint64_t id, const v1::PathMeasured& message, Nanos now) {
  checked(paths_.measured(id, message, now), id, "PathMeasured");
  for (auto& [job_id, job] : jobs_) {
    if (job->state() == CoordinatorJob::State::kRunning && job->membership().agents().contains(id))
      job->set_path(paths_.worst(job->membership().agents()));
  }
  measure_next_path(now);
}

}  // namespace gradbus
