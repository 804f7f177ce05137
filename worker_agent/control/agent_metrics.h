// Publishes a page of metrics once a second. Those who scrape read the newest page, so the
// conductor and the engine never wait for them. Conductor thread only.
#pragma once

#include "common/metrics/job_pages.h"
#include "worker_agent/clients/client_table.h"
#include "worker_agent/control/coordinator_connection.h"
#include "worker_agent/control/running_jobs.h"

namespace gradbus {

class DaemonMonitor;

class AgentMetrics {
 public:
  // Without a monitor nothing is published.
  AgentMetrics(DaemonMonitor* monitor, RunningJobs& jobs, const ClientTable& clients,
               const CoordinatorConnection& coordinator, const ShmQuota& quota,
               const Engine& engine)
      : monitor_(monitor),
        jobs_(jobs),
        clients_(clients),
        coordinator_(coordinator),
        quota_(quota),
        engine_(engine) {}

  void tick(Nanos now);

 private:
  void add_jobs(MetricPage& page, Nanos now);
  void add_node(MetricPage& page) const;

  DaemonMonitor* const monitor_;
  RunningJobs& jobs_;
  const ClientTable& clients_;
  const CoordinatorConnection& coordinator_;
  const ShmQuota& quota_;
  const Engine& engine_;
  JobPages job_pages_;
  Nanos next_ = 0;
};

}  // namespace gradbus
