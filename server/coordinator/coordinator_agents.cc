// Agents and their leases.
#include <algorithm>

#include "proto/control.h"
#include "proto/numbers.h"
#include "server/coordinator/coordinator.h"

namespace gradbus {
namespace {

constexpr size_t kVersionBytesMax = 64;
constexpr int kAddressesMax = 16;
constexpr size_t kAddressBytesMax = 255;
constexpr uint64_t kBandwidthMax = 10'000'000'000'000;  // bit/s

bool addresses_are_sane(const v1::Hello& message) {
  for (const auto& [transport, address] : message.addresses()) {
    if (!is_printable_name(transport, kVersionBytesMax)) return false;
    if (!is_printable_name(address, kAddressBytesMax)) return false;
  }
  return message.addresses_size() <= kAddressesMax;
}

AgentInfo make_agent_info(const v1::Hello& hello) {
  AgentInfo info;
  info.name = hello.name();
  info.shard = hello.shard();
  info.bits_per_s = std::min(hello.bits_per_s(), kBandwidthMax);
  info.reduce_ns = sane_reduce_ns(hello.reduce_ns());
  info.addresses.insert(hello.addresses().begin(), hello.addresses().end());
  return info;
}

}  // namespace

void Coordinator::connect(uint64_t id, Nanos now) {
  agents_[id].heard = now;
  if (agents_.size() <= kAgentsMax) return;
  refuse(id, short_error("C502", std::to_string(kAgentsMax) + " agents are attached already"));
}

std::string Coordinator::describe(const Agent& agent) const {
  if (!agent.welcomed) return "an agent that has not said Hello";
  return agent.info.name + " (pid " + std::to_string(agent.hello.pid()) + ")";
}

Status Coordinator::may_attach(const v1::Hello& message) const {
  if (message.protocol() != kControlProtocol) {
    return short_error("V801", "agent " + in_quotes(message.name()) + " of version " +
                                   clean_text(message.version(), kVersionBytesMax) +
                                   " speaks control protocol " +
                                   std::to_string(message.protocol()) +
                                   ", this coordinator of version " GRADBUS_VERSION " speaks " +
                                   std::to_string(kControlProtocol));
  }
  if (!is_printable_name(message.name(), kNodeNameBytesMax) || !addresses_are_sane(message) ||
      message.version().size() > kVersionBytesMax) {
    return short_error("D602", "Hello holds a name, version or address that is not allowed: " +
                                   in_quotes(message.name()));
  }
  for (const auto& [id, other] : agents_) {
    if (!other.welcomed || other.info.name != message.name()) continue;
    return short_error("C502", "the name " + in_quotes(message.name()) +
                                   " belongs to a live agent with pid " +
                                   std::to_string(other.hello.pid()) + "; refused pid " +
                                   std::to_string(message.pid()));
  }
  return Status();
}

void Coordinator::hello(uint64_t id, Agent& agent, const v1::Hello& message, Nanos now) {
  if (agent.welcomed) {
    checked(false, id, "second Hello");
    return;
  }
  if (Status no = may_attach(message); !no.ok()) {
    outbox_.events().add(EventKind::kRefused, clean_text(message.name(), kNodeNameBytesMax), "",
                         no.message(), now);
    return refuse(id, no);
  }
  agent.welcomed = true;
  agent.hello = message;
  agent.hello.clear_addresses();
  agent.info = make_agent_info(message);
  lost_nodes_.forget(agent.info.name);
  welcome(id);
  outbox_.note((agent.info.shard ? "shard " : "agent ") + describe(agent) + " attached");
  tell_event(EventKind::kAttached, agent,
             (agent.info.shard ? "shard " : "agent ") + describe(agent) + " attached", now);
  take_drained(agent, now);
  if (agent.info.shard)
    for (auto& [job_id, job] : jobs_) job->shard_attached(id, agent.info, now);
  if (agent.info.shard) return;  // paths are for planning collectives between agents
  paths_.attach(id);
  measure_next_path(now);
}

void Coordinator::welcome(uint64_t id) {
  v1::CoordinatorMessage message;
  auto* welcome = message.mutable_welcome();
  welcome->set_agent_id(id);
  welcome->set_incarnation(incarnation_);
  welcome->set_heartbeat_ms(options_.heartbeat_ms);
  welcome->set_lease_ms(options_.lease_ms);
  outbox_.send(id, std::move(message));
}

// Says why and ends the stream; the agent is gone from here on.
void Coordinator::refuse(uint64_t id, const Status& status) {
  v1::CoordinatorMessage message;
  *message.mutable_refused()->mutable_error() = to_proto(status);
  outbox_.send(id, std::move(message), true);
  outbox_.note("refused agent " + std::to_string(id) + ": " + status.message());
  agents_.erase(id);
}

// It was stopped on purpose, so it is not lost. Its stream is closed: the agent waits for that.
void Coordinator::leave(uint64_t id, const Agent& agent, Nanos now) {
  const std::string why = describe(agent) + " was stopped";
  tell_event(EventKind::kNodeStopped, agent, why, now);
  outbox_.close(id);
  agents_.erase(id);
  lose(id, why, now);
}

void Coordinator::tell_event(EventKind kind, const Agent& agent, const std::string& text,
                             Nanos now) {
  outbox_.events().add(kind, agent.info.name, "", text, now);
}

void Coordinator::remember_lost(const Agent& agent, const std::string& why, Nanos now) {
  ++nodes_lost_;
  tell_event(EventKind::kLost, agent, why, now);
  lost_nodes_.add({agent.info.name, agent.hello.pid(), agent.info.shard, why, now});
}

void Coordinator::lose(uint64_t id, const std::string& why, Nanos now) {
  outbox_.note("lost agent " + why);
  paths_.detach(id);
  waiting_.forget(id);
  returning_.lose(id, why);
  for (auto& [job_id, job] : jobs_) job->agent_lost(id, why, now);
  admit_waiting(now);
}

void Coordinator::disconnect(uint64_t id, Nanos now) {
  const auto at = agents_.find(id);
  if (at == agents_.end()) return;
  const bool welcomed = at->second.welcomed;
  const std::string why = describe(at->second) + " closed its connection, last heard " +
                          seconds_text(now - at->second.heard) + " ago";
  if (welcomed) remember_lost(at->second, why, now);
  agents_.erase(at);
  if (welcomed) lose(id, why, now);
}

void Coordinator::renew_leases(Nanos now) {
  for (auto& [unused, agent] : agents_) agent.heard = std::max(agent.heard, now);
}

void Coordinator::end_silent_leases(Nanos now) {
  std::vector<uint64_t> silent;
  for (const auto& [id, agent] : agents_) {
    if (now - agent.heard > Nanos{options_.lease_ms} * kMillisecond) silent.push_back(id);
  }
  for (const uint64_t id : silent) {
    const Agent& agent = agents_.at(id);
    const std::string why =
        describe(agent) + " has been silent for " + seconds_text(now - agent.heard);
    const bool welcomed = agent.welcomed;
    if (welcomed) remember_lost(agent, why, now);
    refuse(id, short_error("C502", why + "; its lease has ended", "attach again"));
    if (welcomed) lose(id, why, now);
  }
}

}  // namespace gradbus
