// The cluster's figures for a scrape. Built under the desk's mutex once a second, so it takes one
// look at each rank and none at tensors.
#include <algorithm>
#include <map>

#include "server/coordinator/coordinator.h"

namespace gradbus {
namespace {

double number(uint64_t value) { return static_cast<double>(value); }

// `counts`: by the number of a field of `Message`; 0 is a message without content.
template <typename Message>
void add_messages(MetricPage& page, const char* direction, const std::map<int, uint64_t>& counts) {
  for (const auto& [field, count] : counts) {
    const auto* const known = Message::descriptor()->FindFieldByNumber(field);
    page.add(Metric::kControlMessages, {direction, known == nullptr ? "empty" : known->name()},
             number(count));
  }
}

}  // namespace

void Coordinator::add_agents(MetricPage& page, Nanos now) const {
  uint64_t agents = 0;
  uint64_t shards = 0;
  Nanos silence = 0;
  for (const auto& [id, agent] : agents_) {
    if (!agent.welcomed) continue;
    ++(agent.info.shard ? shards : agents);
    silence = std::max(silence, now - agent.heard);
  }
  page.add(Metric::kAgents, {"agent"}, number(agents));
  page.add(Metric::kAgents, {"shard"}, number(shards));
  page.add(Metric::kAgentSilence, static_cast<double>(silence) * 1e-9);
  page.add(Metric::kLostNodes, number(lost_nodes_.list().size()));
  page.add(Metric::kAgentsLost, number(nodes_lost_));
}

void Coordinator::add_metrics(MetricPage& page, Nanos now) const {
  add_agents(page, now);
  page.add(Metric::kBadMessages, number(warnings_));
  add_messages<v1::AgentMessage>(page, "received", outbox_.received());
  add_messages<v1::CoordinatorMessage>(page, "sent", outbox_.sent());
  for (const auto& [outcome, count] : outbox_.ends())
    page.add(Metric::kJobsEnded, {outcome}, number(count));
  page.add(Metric::kJobs, {"joining"}, 0);
  page.add(Metric::kJobs, {"running"}, 0);
  size_t labelled = 0;
  for (const auto& [id, job] : jobs_) {
    if (!job->live()) continue;
    const bool joining = job->state() == CoordinatorJob::State::kJoining;
    page.add(Metric::kJobs, {joining ? "joining" : "running"}, 1);
    const std::string label = labelled++ < kJobsLabelledMax ? job->identity().name : kOtherLabel;
    const CoordinatorJob::Figures figures = job->figures(now);
    page.add(Metric::kJobRanks, {label}, number(figures.ranks));
    page.add(Metric::kJobStalled, {label}, figures.stalled ? 1 : 0);
    page.add(Metric::kJobSlowRanks, {label}, number(figures.slow_ranks));
    page.add(Metric::kJobLateness, {label}, number(figures.late_ns) * 1e-9);
  }
}

}  // namespace gradbus
