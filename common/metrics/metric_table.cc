#include "common/metrics/metric_table.h"

#include <array>

namespace gradbus {
namespace {

using enum MetricType;

constexpr std::array kMetrics = {
    MetricInfo{Metric::kBuildInfo, "gradbus_build_info", kGauge, "all", "version, role",
               "Always 1; the labels tell the program's version and role."},
    MetricInfo{Metric::kErrors, "gradbus_errors_total", kCounter, "all", "code",
               "Logged warnings and errors that have an error code (gradbus explain CODE)."},
    MetricInfo{Metric::kLogRecords, "gradbus_log_records_total", kCounter, "all", "level",
               "Lines written to the log."},
    MetricInfo{Metric::kThreadIdle, "gradbus_thread_stuck_seconds", kGauge, "all", "thread",
               "Time since this thread was last seen to make progress; above 2 it may be stuck."},
    MetricInfo{Metric::kMetricsAge, "gradbus_metrics_age_seconds", kGauge, "all", "",
               "Age of the figures of jobs and links on this page; they are renewed each second."},
    MetricInfo{Metric::kProcessCpu, "process_cpu_seconds_total", kCounter, "all", "",
               "Processor time of the daemon, user and system."},
    MetricInfo{Metric::kProcessMemory, "process_resident_memory_bytes", kGauge, "all", "",
               "Resident memory of the daemon, with the shared memory that it has touched."},
    MetricInfo{Metric::kProcessFiles, "process_open_fds", kGauge, "all", "",
               "Open file descriptors."},
    MetricInfo{Metric::kProcessFilesMax, "process_max_fds", kGauge, "all", "",
               "Limit of open file descriptors."},
    MetricInfo{Metric::kProcessThreads, "process_threads", kGauge, "all", "",
               "Threads of the daemon."},
    MetricInfo{Metric::kProcessStart, "process_start_time_seconds", kGauge, "all", "",
               "Start of the daemon, in seconds since 1970."},

    MetricInfo{Metric::kCoordinatorConnected, "gradbus_coordinator_connected", kGauge,
               "agent, shard", "", "1 while the coordinator knows this daemon, else 0."},
    MetricInfo{Metric::kCoordinatorConnects, "gradbus_coordinator_connects_total", kCounter,
               "agent, shard", "",
               "How often the coordinator has accepted this daemon; each one after the first is a "
               "reconnect."},
    MetricInfo{Metric::kClients, "gradbus_clients", kGauge, "agent, shard", "",
               "Attached training processes."},
    MetricInfo{Metric::kClientsMax, "gradbus_clients_max", kGauge, "agent, shard", "",
               "Maximum of attached training processes (--clients-max)."},
    MetricInfo{Metric::kClientPackets, "gradbus_client_packets_total", kCounter, "agent", "",
               "Packets of this node's processes on the attach socket: joins, registrations and "
               "the like. A step sends none."},
    MetricInfo{Metric::kNodeJobs, "gradbus_node_jobs", kGauge, "agent, shard", "",
               "Jobs that this daemon serves."},
    MetricInfo{Metric::kSharedMemory, "gradbus_arena_bytes", kGauge, "agent, shard", "",
               "Memory that jobs have reserved: shared memory and what codecs need."},
    MetricInfo{Metric::kSharedMemoryMax, "gradbus_arena_max_bytes", kGauge, "agent, shard", "",
               "Limit of that memory (--shm-bytes-max)."},
    MetricInfo{Metric::kSentBytes, "gradbus_sent_bytes_total", kCounter, "agent, shard", "",
               "Payload bytes sent to other daemons, over all jobs and measurements of paths."},
    MetricInfo{
        Metric::kReceivedBytes, "gradbus_received_bytes_total", kCounter, "agent, shard", "",
        "Payload bytes received from other daemons, over all jobs and measurements of paths."},
    MetricInfo{Metric::kCopiedBytes, "gradbus_copied_bytes_total", kCounter, "agent, shard",
               "direction",
               "Payload bytes that a processor copied between memory and network; direction is "
               "send or receive."},
    MetricInfo{Metric::kLocalSentBytes, "gradbus_local_sent_bytes_total", kCounter, "agent, shard",
               "", "Payload bytes sent through memory shared with a daemon of the same machine."},
    MetricInfo{Metric::kPathSwitches, "gradbus_path_switches_total", kCounter, "agent, shard", "",
               "Changes of links from one network path to the next."},
    MetricInfo{Metric::kPathLinks, "gradbus_path_links", kGauge, "agent, shard", "path",
               "Links that use this network path; only with several paths."},
    MetricInfo{Metric::kSpins, "gradbus_spins_total", kCounter, "agent, shard", "",
               "Searches of the engine for work before it sleeps."},
    MetricInfo{Metric::kSpinsPaid, "gradbus_spins_paid_total", kCounter, "agent, shard", "",
               "Such searches that found work."},
    MetricInfo{Metric::kLinkSentBytes, "gradbus_link_sent_bytes_total", kCounter, "agent, shard",
               "job_name, peer, transport", "Payload bytes sent to this daemon for this job."},
    MetricInfo{Metric::kLinkReceivedBytes, "gradbus_link_received_bytes_total", kCounter,
               "agent, shard", "job_name, peer, transport",
               "Payload bytes received from this daemon for this job."},
    MetricInfo{Metric::kLinkLosses, "gradbus_link_losses_total", kCounter, "agent, shard",
               "job_name", "Links of this job that ended while it ran."},
    MetricInfo{Metric::kWaitingFrames, "gradbus_waiting_frames", kGauge, "agent, shard", "job_name",
               "Frames of this job that wait until the network takes them: the send queue."},
    MetricInfo{Metric::kSendQueue, "gradbus_send_queue_frames", kDepths, "agent, shard", "job_name",
               "Depth of the send queue: frames of this job that waited when one more came."},
    MetricInfo{Metric::kBudgetBytes, "gradbus_budget_bytes", kGauge, "agent", "job_name",
               "Bytes of this job's operations in flight between nodes whose tensors have a byte "
               "budget."},
    MetricInfo{Metric::kBudgetBytesMax, "gradbus_budget_bytes_max", kGauge, "agent", "job_name",
               "The most of these bytes so far."},
    MetricInfo{Metric::kBudgetDelays, "gradbus_budget_delays_total", kCounter, "agent", "job_name",
               "Operations that waited for the byte budget."},
    MetricInfo{Metric::kOperations, "gradbus_operations_total", kCounter, "agent, shard",
               "job_name, op",
               "Finished operations between nodes. On one node, ranks exchange without the agent: "
               "gradbus_rank_operations_total."},
    MetricInfo{Metric::kOperationBytes, "gradbus_operation_bytes_total", kCounter, "agent, shard",
               "job_name, op", "Bytes of the tensors of these operations, before compression."},
    MetricInfo{Metric::kOperationDuration, "gradbus_operation_duration_seconds", kDurations,
               "agent, shard", "job_name, op",
               "Time of an operation between nodes, from the last local rank's start to the "
               "result."},
    MetricInfo{Metric::kRankLateness, "gradbus_rank_lateness_seconds", kDurations, "agent, shard",
               "job_name",
               "How much later than the first rank of the node a rank started an operation."},
    MetricInfo{Metric::kStaleness, "gradbus_staleness_steps", kSteps, "agent, shard", "job_name",
               "Steps of other nodes between the parameters that a node had and its own step."},
    MetricInfo{Metric::kUncompressedBytes, "gradbus_uncompressed_bytes_total", kCounter,
               "agent, shard", "job_name", "Bytes given to codecs."},
    MetricInfo{Metric::kCompressedBytes, "gradbus_compressed_bytes_total", kCounter, "agent, shard",
               "job_name", "Bytes that codecs made of these."},
    MetricInfo{
        Metric::kFidelityCosine, "gradbus_fidelity_cosine", kGauge, "agent, shard", "job_name",
        "Cosine between the compressed and the dense gradient of the tensor that was measured "
        "last; only with fidelity=."},
    MetricInfo{Metric::kRankOperations, "gradbus_rank_operations_total", kCounter, "agent, shard",
               "job_name, rank", "Operations that this rank has started."},
    MetricInfo{Metric::kRankBytes, "gradbus_rank_bytes_total", kCounter, "agent, shard",
               "job_name, rank", "Bytes of these operations."},
    MetricInfo{Metric::kRankWait, "gradbus_rank_wait_seconds_total", kCounter, "agent, shard",
               "job_name, rank",
               "Time in which this rank was blocked by communication: the exposed part. The latest "
               "rank has the least."},
    MetricInfo{Metric::kRankStep, "gradbus_rank_step", kGauge, "agent, shard", "job_name, rank",
               "Highest round that this rank has started on any tensor."},

    MetricInfo{Metric::kAgents, "gradbus_agents", kGauge, "coordinator", "role",
               "Attached daemons; role is agent or shard."},
    MetricInfo{Metric::kLostNodes, "gradbus_lost_nodes", kGauge, "coordinator", "",
               "Daemons that ended without a goodbye and have not returned."},
    MetricInfo{Metric::kAgentsLost, "gradbus_leases_lost_total", kCounter, "coordinator", "",
               "Daemons whose lease or connection ended without a goodbye."},
    MetricInfo{Metric::kAgentSilence, "gradbus_agent_silence_seconds", kGauge, "coordinator", "",
               "Time since the last message of the most silent daemon."},
    MetricInfo{Metric::kJobs, "gradbus_jobs", kGauge, "coordinator", "state",
               "Jobs by state: joining or running."},
    MetricInfo{Metric::kJobsEnded, "gradbus_jobs_ended_total", kCounter, "coordinator", "outcome",
               "Ended jobs; outcome is done, or the code of the error."},
    MetricInfo{Metric::kJobRanks, "gradbus_job_ranks", kGauge, "coordinator", "job_name",
               "Joined ranks of a live job."},
    MetricInfo{
        Metric::kJobStalled, "gradbus_job_stalled", kGauge, "coordinator", "job_name",
        "1 while ranks of the job wait for a late rank for a second or more, else 0. Jobs that "
        "share the label \"other\" add up."},
    MetricInfo{Metric::kJobSlowRanks, "gradbus_job_slow_ranks", kGauge, "coordinator", "job_name",
               "Ranks that the others wait for."},
    MetricInfo{Metric::kJobLateness, "gradbus_job_lateness_seconds", kGauge, "coordinator",
               "job_name",
               "How much less than the longest-waiting rank the latest rank has waited, since the "
               "job's start."},
    MetricInfo{Metric::kBadMessages, "gradbus_bad_messages_total", kCounter, "coordinator", "",
               "Messages of daemons that the coordinator refused as invalid."},
    MetricInfo{Metric::kControlMessages, "gradbus_control_messages_total", kCounter, "coordinator",
               "direction, message",
               "Messages between the coordinator and its daemons; direction is received or sent. "
               "While a job only makes steps, there are heartbeats and nothing else."},
};

constexpr bool rows_follow_the_numbers() {
  for (size_t i = 0; i < kMetrics.size(); ++i)
    if (kMetrics[i].metric != static_cast<Metric>(i)) return false;
  return true;
}
static_assert(rows_follow_the_numbers());
static_assert(kMetrics.size() == static_cast<size_t>(Metric::kControlMessages) + 1);

}  // namespace

const MetricInfo& metric_info(Metric metric) { return kMetrics[static_cast<size_t>(metric)]; }

}  // namespace gradbus
