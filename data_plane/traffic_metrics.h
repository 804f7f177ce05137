// A job's traffic as rows of the metric table.
#pragma once

#include <string>
#include <vector>

#include "common/metrics/metric_page.h"
#include "data_plane/job_traffic.h"

namespace gradbus {

struct TrafficLabels {
  std::string job;
  std::string transport;
  std::vector<std::string> peers;  // names of agents by index, then of shards
};

// Kinds and peers without traffic have no rows.
void add_traffic(MetricPage& page, const TrafficLabels& labels, const JobTraffic& traffic);

}  // namespace gradbus
