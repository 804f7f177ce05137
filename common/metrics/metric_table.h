// Every metric that a daemon exposes: one table with stable names. docs/reference/metrics.md and
// the checks of alerts and dashboard come from it. A name or a label is never changed, only added.
//
// Units are base units (seconds, bytes), and labels are bounded: no tensor has one. Prometheus
// itself uses the label "job" for what it scrapes, so ours is job_name.
#pragma once

#include <cstdint>
#include <string_view>

namespace gradbus {

enum class MetricType : uint8_t { kCounter, kGauge, kDurations, kSteps, kDepths };

enum class Metric : uint8_t {
  kBuildInfo,
  kErrors,
  kLogRecords,
  kThreadIdle,
  kMetricsAge,
  kProcessCpu,
  kProcessMemory,
  kProcessFiles,
  kProcessFilesMax,
  kProcessThreads,
  kProcessStart,
  // agents and shards
  kCoordinatorConnected,
  kCoordinatorConnects,
  kClients,
  kClientsMax,
  kClientPackets,
  kNodeJobs,
  kSharedMemory,
  kSharedMemoryMax,
  kSentBytes,
  kReceivedBytes,
  kCopiedBytes,
  kLocalSentBytes,
  kPathSwitches,
  kPathLinks,
  kSpins,
  kSpinsPaid,
  kLinkSentBytes,
  kLinkReceivedBytes,
  kLinkLosses,
  kWaitingFrames,
  kSendQueue,
  kBudgetBytes,
  kBudgetBytesMax,
  kBudgetDelays,
  kOperations,
  kOperationBytes,
  kOperationDuration,
  kRankLateness,
  kStaleness,
  kUncompressedBytes,
  kCompressedBytes,
  kFidelityCosine,
  kRankOperations,
  kRankBytes,
  kRankWait,
  kRankStep,
  // the coordinator
  kAgents,
  kLostNodes,
  kAgentsLost,
  kAgentSilence,
  kJobs,
  kJobsEnded,
  kJobRanks,
  kJobStalled,
  kJobSlowRanks,
  kJobLateness,
  kBadMessages,
  kControlMessages,
};

struct MetricInfo {
  Metric metric;
  std::string_view name;
  MetricType type;
  std::string_view daemons;  // who exposes it: "all", "agent, shard" or "coordinator"
  std::string_view labels;   // names with ", " between
  std::string_view help;     // a sentence
};

const MetricInfo& metric_info(Metric metric);

}  // namespace gradbus
