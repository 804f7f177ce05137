// The admin query.
#include "server/coordinator/coordinator.h"

namespace gradbus {

void Coordinator::add_job_names(uint64_t id, v1::AgentStatus& status) const {
  for (const auto& [job_id, job] : jobs_) {
    const bool takes_part = job->membership().agents().contains(id) || job->shards().contains(id);
    if (job->live() && takes_part) status.add_jobs(job->identity().name);
  }
}

v1::AgentStatus Coordinator::describe_agent(uint64_t id, const Agent& agent, Nanos now) const {
  v1::AgentStatus status;
  status.set_agent_id(id);
  status.set_name(agent.info.name);
  status.set_version(agent.hello.version());
  const auto& addresses = agent.info.addresses;
  const auto tcp = addresses.find("tcp");
  if (tcp != addresses.end()) status.set_address(tcp->second);
  if (tcp == addresses.end() && !addresses.empty()) status.set_address(addresses.begin()->second);
  status.set_shard(agent.info.shard);
  status.set_bits_per_s(agent.info.bits_per_s);
  status.set_cores(agent.hello.cores());
  status.set_pid(agent.hello.pid());
  status.set_reduce_ns(agent.info.reduce_ns);
  status.set_silent_ms(static_cast<uint64_t>((now - agent.heard) / kMillisecond));
  *status.mutable_transport() = agent.transport;
  status.set_drained(drained_nodes_.has(agent.info.name));
  add_job_names(id, status);
  return status;
}

// Detached agents have no paths, so both names are there.
void Coordinator::add_paths(v1::StatusReply& reply) const {
  for (const auto& [pair, figures] : paths_.known()) {
    if (static_cast<size_t>(reply.paths_size()) == kStatusPathsMax) return;
    v1::PathStatus& path = *reply.add_paths();
    path.set_agent(agents_.at(pair.first).info.name);
    path.set_peer(agents_.at(pair.second).info.name);
    path.set_alpha_us(figures.alpha_us);
    path.set_beta_ns(figures.beta_ns);
  }
}

void Coordinator::add_lost_nodes(v1::StatusReply& reply, Nanos now) const {
  for (const LostNodes::Node& node : lost_nodes_.list()) {
    v1::LostNode& lost = *reply.add_lost_nodes();
    lost.set_name(node.name);
    lost.set_pid(node.pid);
    lost.set_shard(node.shard);
    lost.set_why(node.why);
    lost.set_lost_ms(static_cast<uint64_t>((now - node.at) / kMillisecond));
  }
}

v1::EventsReply Coordinator::events(uint64_t after, Nanos now, size_t newest) const {
  v1::EventsReply reply = outbox_.events().after(after, now, newest);
  reply.set_incarnation(incarnation_);
  return reply;
}

void Coordinator::reloaded(const Status& result, Nanos now) {
  outbox_.events().add(EventKind::kReloaded, "", "",
                       result.ok() ? "the configuration was read again"
                                   : "the configuration stays as it was: " + result.message(),
                       now);
}

v1::StatusReply Coordinator::status(const v1::StatusRequest& request, Nanos now,
                                    size_t tensors_max) const {
  v1::StatusReply reply;
  reply.set_version(GRADBUS_VERSION);
  reply.set_uptime_ms(static_cast<uint64_t>((now - started_at_) / kMillisecond));
  for (const auto& [id, agent] : agents_) {
    if (agent.welcomed) *reply.add_agents() = describe_agent(id, agent, now);
  }
  add_paths(reply);
  add_lost_nodes(reply, now);
  add_drained(reply, now);
  reply.set_page(options_.page);
  size_t tensors_left = tensors_max;
  for (const auto& [id, job] : jobs_) {
    if (!request.job().empty() && request.job() != job->identity().name) continue;
    *reply.add_jobs() = job->describe(now, tensors_left);
    tensors_left -= static_cast<size_t>(reply.jobs().rbegin()->tensors_size());
  }
  return reply;
}

}  // namespace gradbus
