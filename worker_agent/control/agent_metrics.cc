#include "worker_agent/control/agent_metrics.h"

#include "common/daemon/daemon_monitor.h"
#include "data_plane/traffic_metrics.h"

namespace gradbus {
namespace {

double number(uint64_t value) { return static_cast<double>(value); }

void add_transport(MetricPage& page, const TransportTotals& totals) {
  page.add(Metric::kSentBytes, number(totals.sent_bytes));
  page.add(Metric::kReceivedBytes, number(totals.received_bytes));
  page.add(Metric::kCopiedBytes, {"send"}, number(totals.send_copied_bytes));
  page.add(Metric::kCopiedBytes, {"receive"}, number(totals.receive_copied_bytes));
  page.add(Metric::kLocalSentBytes, number(totals.shared_bytes));
  page.add(Metric::kPathSwitches, number(totals.switches));
  for (const PathTotals& path : totals.paths)
    page.add(Metric::kPathLinks, {path.name}, number(path.links));
}

TrafficLabels traffic_labels(const std::string& label, const v1::JobStarted& started) {
  TrafficLabels labels{label, started.transport(), {}};
  for (const v1::JobAgent& agent : started.agents()) labels.peers.push_back(agent.name());
  for (const v1::JobAgent& shard : started.shards()) labels.peers.push_back(shard.name());
  return labels;
}

}  // namespace

void WorkerControlJob::add_metrics(MetricPage& page, const std::string& label) const {
  add_traffic(page, traffic_labels(label, started_), *traffic_);
  if (label == kOtherLabel) return;
  for (size_t local = 0; local < channels_.size(); ++local) {
    const ChannelHeader& header = channels_[local]->header();
    const MetricLabels rank{label, std::to_string(local_ranks_[local])};
    const auto add = [&](Metric metric, const std::atomic<uint64_t>& counter, double unit) {
      page.add(metric, rank, number(counter.load(std::memory_order_relaxed)) * unit);
    };
    add(Metric::kRankOperations, header.operations, 1);
    add(Metric::kRankBytes, header.bytes, 1);
    add(Metric::kRankWait, header.wait_ns, 1e-9);
    add(Metric::kRankStep, header.step, 1);
  }
}

void AgentMetrics::tick(Nanos now) {
  if (monitor_ == nullptr || now < next_) return;
  next_ = now + kMetricsEvery;
  MetricPage page;
  add_jobs(page, now);
  add_node(page);
  monitor_->board().publish(std::move(page), now);
}

void AgentMetrics::add_jobs(MetricPage& page, Nanos now) {
  std::map<uint64_t, MetricPage> jobs;
  for (const WorkerControlJob& job : jobs_.all())
    if (!job.failed()) job.add_metrics(jobs[job.id()], job_pages_.label(job.id(), job.name()));
  jobs_.of_shard().for_each_traffic(
      [&](uint64_t id, const v1::JobStarted& started, const JobTraffic& traffic) {
        const std::string& label = job_pages_.label(id, started.job());
        add_traffic(jobs[id], traffic_labels(label, started), traffic);
      });
  page.add(Metric::kNodeJobs, number(jobs.size()));
  job_pages_.renew(std::move(jobs), now);
  job_pages_.add_to(page);
}

void AgentMetrics::add_node(MetricPage& page) const {
  page.add(Metric::kCoordinatorConnected, coordinator_.connected() ? 1 : 0);
  page.add(Metric::kCoordinatorConnects, number(coordinator_.welcomes()));
  page.add(Metric::kClients, number(clients_.size()));
  page.add(Metric::kClientsMax, number(clients_.size_max()));
  page.add(Metric::kClientPackets, number(clients_.packets()));
  page.add(Metric::kSharedMemory, number(quota_.bytes_used));
  page.add(Metric::kSharedMemoryMax, number(quota_.bytes_max));
  add_transport(page, engine_.transport_totals());
  page.add(Metric::kSpins, number(engine_.spins()));
  page.add(Metric::kSpinsPaid, number(engine_.spins_paid()));
}

}  // namespace gradbus
