#include "server/status/status_json.h"

#include <nlohmann/json.hpp>

#include "common/dtype.h"
#include "proto/numbers.h"
#include "server/status/problems.h"

namespace gradbus {
namespace {

using Json = nlohmann::ordered_json;

// Names come from other processes and need not be UTF-8.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json event_object(const v1::Event& event) {
  return {{"number", event.number()}, {"kind", event.kind()}, {"node", event.node()},
          {"job", event.job()},       {"text", event.text()}, {"age_ms", event.age_ms()},
          {"times", event.times()}};
}

Json transport_json(const v1::TransportCounters& counters) {
  Json paths = Json::array();
  for (const v1::LinkPath& path : counters.paths())
    paths.push_back({{"path", path.name()}, {"links", path.links()}});
  return {{"paths", paths},
          {"switches", counters.switches()},
          {"sent_bytes", counters.sent_bytes()},
          {"received_bytes", counters.received_bytes()},
          {"send_copied_bytes", counters.send_copied_bytes()},
          {"receive_copied_bytes", counters.receive_copied_bytes()},
          {"shared_bytes", counters.shared_bytes()},
          {"spins", counters.spins()},
          {"spins_paid", counters.spins_paid()}};
}

Json agent_json(const v1::AgentStatus& agent) {
  Json jobs = Json::array();
  for (const std::string& job : agent.jobs()) jobs.push_back(job);
  return {{"agent_id", agent.agent_id()},
          {"name", agent.name()},
          {"version", agent.version()},
          {"address", agent.address()},
          {"cores", agent.cores()},
          {"pid", agent.pid()},
          {"silent_ms", agent.silent_ms()},
          {"reduce_ns", agent.reduce_ns()},
          {"shard", agent.shard()},
          {"drained", agent.drained()},
          {"bits_per_s", agent.bits_per_s()},
          {"transport", transport_json(agent.transport())},
          {"jobs", jobs}};
}

Json lost_node_json(const v1::LostNode& node) {
  return {{"name", node.name()},
          {"pid", node.pid()},
          {"shard", node.shard()},
          {"why", node.why()},
          {"lost_ms", node.lost_ms()}};
}

Json path_json(const v1::PathStatus& path) {
  return {{"agent", path.agent()},
          {"peer", path.peer()},
          {"alpha_us", path.alpha_us()},
          {"beta_ns", path.beta_ns()}};
}

Json rank_json(const v1::RankStatus& rank) {
  const v1::RankCounters& counters = rank.counters();
  return {{"rank", rank.rank()},
          {"agent", rank.agent()},
          {"pid", rank.pid()},
          {"state", rank.state()},
          {"operations", counters.operations()},
          {"bytes", counters.bytes()},
          {"wait_ns", counters.wait_ns()},
          {"step", counters.step()},
          {"losses", counters.losses()},
          {"losses_not_finite", counters.losses_not_finite()},
          {"loss_sum", counters.loss_sum()},
          {"idle_ms", counters.idle_ms()},
          {"late_ns", rank.late_ns()},
          {"bytes_per_s", rank.bytes_per_s()},
          {"operations_per_s", rank.operations_per_s()},
          {"waiting", rank.waiting()},
          {"slow", rank.slow()}};
}

Json tensor_json(const v1::TensorSpec& tensor, const v1::TensorPlan& plan) {
  return {{"name", tensor.name()},
          {"count", tensor.count()},
          {"dtype", dtype_name(static_cast<DType>(tensor.dtype()))},
          {"op", reduce_op_name(static_cast<ReduceOp>(tensor.op()))},
          {"collective", collective_name(static_cast<CollectiveKind>(tensor.collective()))},
          {"root", tensor.root()},
          {"mode", tensor.mode()},
          {"compression", tensor.compression()},
          {"priority", tensor.priority()},
          {"result_priority", tensor.result_priority()},
          {"budget_bytes", tensor.budget_bytes()},
          {"algorithm", algorithm_name(static_cast<Algorithm>(plan.algorithm()))},
          {"chunk_elements", plan.chunk_elements()},
          {"communicator", plan.communicator()},
          {"why", plan.why()}};
}

Json fidelity_json(const v1::Fidelity& fidelity) {
  return {{"tensor", fidelity.tensor()},
          {"round", fidelity.round()},
          {"cosine", fidelity.cosine()},
          {"relative_error", fidelity.relative_error()},
          {"residual_ratio", fidelity.residual_ratio()}};
}

Json staleness_json(const v1::StalenessStatus& staleness) {
  return {{"mode", staleness.mode()},
          {"agent", staleness.agent()},
          {"mean", staleness.mean()},
          {"most", staleness.most()}};
}

Json shard_json(const v1::ShardStatus& shard) {
  return {{"shard", shard.name()},
          {"sent_bytes", shard.sent_bytes()},
          {"received_bytes", shard.received_bytes()},
          {"lost", shard.lost()},
          {"waits", shard.waits()},
          {"share", shard.share()},
          {"beside", shard.beside()}};
}

Json mode_change_json(const v1::ModeChangeStatus& change) {
  return {{"group", change.group()},
          {"mode", change.mode()},
          {"reason", change.reason()},
          {"age_ms", change.age_ms()}};
}

Json job_json(const v1::JobStatus& job) {
  Json ranks = Json::array();
  for (const v1::RankStatus& rank : job.ranks()) ranks.push_back(rank_json(rank));
  Json tensors = Json::array();
  for (int i = 0; i < job.tensors_size(); ++i)
    tensors.push_back(
        tensor_json(job.tensors(i), i < job.plans_size() ? job.plans(i) : v1::TensorPlan()));
  Json fidelity = Json::array();
  for (const v1::Fidelity& of : job.fidelity()) fidelity.push_back(fidelity_json(of));
  Json shards = Json::array();
  for (const v1::ShardStatus& shard : job.shards()) shards.push_back(shard_json(shard));
  Json mode_changes = Json::array();
  for (const v1::ModeChangeStatus& change : job.mode_changes())
    mode_changes.push_back(mode_change_json(change));
  Json staleness = Json::array();
  for (const v1::StalenessStatus& of : job.staleness()) staleness.push_back(staleness_json(of));
  return {{"job", job.job()},
          {"job_id", job.job_id()},
          {"state", job.state()},
          {"outcome", job.outcome()},
          {"ended_ms", job.ended_ms()},
          {"epoch", job.epoch()},
          {"uid", job.uid()},
          {"user", job.user()},
          {"world_size", job.world_size()},
          {"age_ms", job.age_ms()},
          {"transport", job.transport()},
          {"nccl_tensors", job.nccl_tensors()},
          {"no_nccl", job.no_nccl()},
          {"sent_bytes", job.sent_bytes()},
          {"received_bytes", job.received_bytes()},
          {"uncompressed_bytes", job.uncompressed_bytes()},
          {"compressed_bytes", job.compressed_bytes()},
          {"stall", job.stall()},
          {"error", job.error().message()},
          {"ranks", ranks},
          {"tensors", tensors},
          {"mode_changes", mode_changes},
          {"staleness", staleness},
          {"fidelity", fidelity},
          {"shards", shards}};
}

}  // namespace

std::string status_json(const v1::StatusReply& reply, const std::string& address) {
  Json agents = Json::array();
  for (const v1::AgentStatus& agent : reply.agents()) agents.push_back(agent_json(agent));
  Json lost_nodes = Json::array();
  for (const v1::LostNode& node : reply.lost_nodes()) lost_nodes.push_back(lost_node_json(node));
  Json drained_nodes = Json::array();
  for (const v1::DrainedNode& node : reply.drained_nodes())
    drained_nodes.push_back(
        {{"node", node.name()}, {"reason", node.reason()}, {"drained_ms", node.drained_ms()}});
  Json paths = Json::array();
  for (const v1::PathStatus& path : reply.paths()) paths.push_back(path_json(path));
  Json jobs = Json::array();
  for (const v1::JobStatus& job : reply.jobs()) jobs.push_back(job_json(job));
  const Json object = {{"coordinator", address},
                       {"version", reply.version()},
                       {"uptime_ms", reply.uptime_ms()},
                       {"healthy", problems(reply).empty()},
                       {"problems", problems(reply)},
                       {"agents", agents},
                       {"lost_nodes", lost_nodes},
                       {"drained_nodes", drained_nodes},
                       {"page", reply.page()},
                       {"paths", paths},
                       {"jobs", jobs}};
  return text_of(object);
}

std::string event_json(const v1::Event& event) { return text_of(event_object(event)); }

std::string events_json(const v1::EventsReply& reply) {
  Json events = Json::array();
  for (const v1::Event& event : reply.events()) events.push_back(event_object(event));
  return text_of(events);
}

}  // namespace gradbus
