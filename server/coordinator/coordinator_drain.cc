// Nodes that get no new jobs, at the wish of a person.
#include <algorithm>

#include "server/coordinator/coordinator.h"

namespace gradbus {

namespace {

constexpr size_t kDrainReasonBytesMax = 300;

// The same process was this rank, on this node, of a job that has ended: gradbus.elastic joins
// again after a loss.
bool was_rank_of(const CoordinatorJob& job, const std::string& node, const v1::JoinJob& join) {
  const CoordinatorJob::Identity& known = job.identity();
  const RankRecord* const rank = job.membership().find(join.rank());
  return !job.live() && known.name == join.job() && known.owner.uid == join.uid() &&
         rank != nullptr && rank->pid != 0 && rank->pid == join.pid() &&
         job.membership().agent_name(join.rank()) == node;
}

}  // namespace

// Ranks of a job that has begun to join through this node may still come, and those that come back.
Status Coordinator::takes_jobs(uint64_t id, const Agent& agent, const CoordinatorJob* job,
                               const v1::JoinJob& join) const {
  const auto& drained = drained_nodes_.list();
  const auto at = drained.find(agent.info.name);
  if (at == drained.end()) return {};
  if (job != nullptr && job->membership().agents().contains(id)) return {};
  if (std::ranges::any_of(jobs_, [&](const auto& entry) {
        return was_rank_of(*entry.second, agent.info.name, join);
      }))
    return {};
  return short_error(
      "C507", "node " + in_quotes(agent.info.name) + " takes no new jobs: " + at->second.reason);
}

void Coordinator::tell_drained(const std::string& node) {
  const auto& drained = drained_nodes_.list();
  const auto at = drained.find(node);
  v1::CoordinatorMessage message;
  message.mutable_node_drained()->set_drained(at != drained.end());
  if (at != drained.end()) message.mutable_node_drained()->set_reason(at->second.reason);
  for (const auto& [id, agent] : agents_)
    if (agent.welcomed && agent.info.name == node) outbox_.send(id, message);
}

// A node that attaches: one that this coordinator drained before, or an earlier coordinator.
void Coordinator::take_drained(const Agent& agent, Nanos now) {
  const std::string& name = agent.info.name;
  const v1::NodeDrained& known = agent.hello.drained();
  if (known.drained() && !drained_nodes_.has(name) && !drained_nodes_.full()) {
    drained_nodes_.add(name, clean_text(known.reason(), kDrainReasonBytesMax), now);
    tell_event(EventKind::kDrained, agent, "as before the coordinator was started", now);
  }
  if (drained_nodes_.has(name) != known.drained()) tell_drained(name);
}

Status Coordinator::drain(const v1::DrainNodeRequest& request, Nanos now) {
  const std::string& node = request.node();
  const auto& lost = lost_nodes_.list();
  const bool known =
      std::ranges::any_of(agents_,
                          [&](const auto& entry) {
                            return entry.second.welcomed && entry.second.info.name == node;
                          }) ||
      std::ranges::any_of(lost, [&](const auto& entry) { return entry.name == node; });
  if (!known) return short_error("C505", "no node is called " + in_quotes(node));
  if (drained_nodes_.full())
    return short_error("C505", "too many nodes are drained already",
                       "gradbus drain --undo NODE for some of them");
  const std::string reason = request.reason().empty()
                                 ? "no reason was given"
                                 : clean_text(request.reason(), kDrainReasonBytesMax);
  drained_nodes_.add(node, reason, now);
  outbox_.events().add(EventKind::kDrained, node, "", reason, now);
  tell_drained(node);
  return {};
}

Status Coordinator::undo_drain(const std::string& node, Nanos now) {
  if (!drained_nodes_.remove(node))
    return short_error("C505", "no drained node is called " + in_quotes(node));
  outbox_.events().add(EventKind::kUndrained, node, "", "takes jobs again", now);
  tell_drained(node);
  return {};
}

v1::DrainNodeReply Coordinator::drain_node(const v1::DrainNodeRequest& request,
                                           const std::string& address, Nanos now) {
  const Status done = request.undo() ? undo_drain(request.node(), now) : drain(request, now);
  log_wish(
      (request.undo() ? "end of the drain of node " : "drain of node ") + in_quotes(request.node()),
      request.caller(), address, done, now);
  v1::DrainNodeReply reply;
  if (!done.ok()) *reply.mutable_error() = to_proto(done);
  return reply;
}

void Coordinator::add_drained(v1::StatusReply& reply, Nanos now) const {
  for (const auto& [name, node] : drained_nodes_.list()) {
    v1::DrainedNode& shown = *reply.add_drained_nodes();
    shown.set_name(name);
    shown.set_reason(node.reason);
    shown.set_drained_ms(static_cast<uint64_t>((now - node.at) / kMillisecond));
  }
}

}  // namespace gradbus
