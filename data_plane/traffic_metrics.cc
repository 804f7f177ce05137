#include "data_plane/traffic_metrics.h"

namespace gradbus {
namespace {

double number(const Tally& tally) { return static_cast<double>(tally.value()); }

void add_operations(MetricPage& page, const std::string& job, const JobTraffic& traffic) {
  for (uint32_t kind = 1; kind <= kCollectiveKinds; ++kind) {
    const JobTraffic::Operations& counted = traffic.operations[kind - 1];
    if (counted.rounds.value() == 0) continue;
    const MetricLabels labels{job, std::string(collective_name(static_cast<CollectiveKind>(kind)))};
    page.add(Metric::kOperations, labels, number(counted.rounds));
    page.add(Metric::kOperationBytes, labels, number(counted.bytes));
    page.add(Metric::kOperationDuration, labels, counted.duration.sample());
  }
}

void add_peers(MetricPage& page, const TrafficLabels& labels, const JobTraffic& traffic) {
  for (uint32_t peer = 0; peer < kPeersCounted; ++peer) {
    const JobTraffic::Peer& counted = traffic.peers[peer];
    if (counted.sent_bytes.value() + counted.received_bytes.value() == 0) continue;
    const bool shared = peer + 1 == kPeersCounted && labels.peers.size() > kPeersCounted;
    const bool known = peer < labels.peers.size() && !shared;
    const MetricLabels row{labels.job, known ? labels.peers[peer] : kOtherLabel, labels.transport};
    page.add(Metric::kLinkSentBytes, row, number(counted.sent_bytes));
    page.add(Metric::kLinkReceivedBytes, row, number(counted.received_bytes));
  }
}

}  // namespace

void add_traffic(MetricPage& page, const TrafficLabels& labels, const JobTraffic& traffic) {
  const std::string& job = labels.job;
  add_operations(page, job, traffic);
  add_peers(page, labels, traffic);
  page.add(Metric::kLinkLosses, {job}, number(traffic.links_lost));
  page.add(Metric::kWaitingFrames, {job}, number(traffic.waiting_frames));
  page.add(Metric::kSendQueue, {job}, traffic.queued.sample());
  if (traffic.budget_bytes_max.value() > 0) {
    page.add(Metric::kBudgetBytes, {job}, number(traffic.budget_bytes));
    page.add(Metric::kBudgetBytesMax, {job}, number(traffic.budget_bytes_max));
    page.add(Metric::kBudgetDelays, {job}, number(traffic.budget_delays));
  }
  page.add(Metric::kRankLateness, {job}, traffic.lateness.sample());
  page.add(Metric::kStaleness, {job}, traffic.staleness.sample());
  page.add(Metric::kUncompressedBytes, {job}, number(traffic.uncompressed_bytes));
  page.add(Metric::kCompressedBytes, {job}, number(traffic.compressed_bytes));
  const double cosine = traffic.fidelity_cosine.load(std::memory_order_relaxed);
  if (cosine >= -1) page.add(Metric::kFidelityCosine, {job}, cosine);
}

}  // namespace gradbus
