// What every daemon tells about itself: its process, its version and what it has logged. Any
// thread.
#pragma once

#include <string>

#include "common/metrics/metric_page.h"
#include "common/status.h"

namespace gradbus {

// GB-S220 when this process has nearly as many open files as it may have.
Status check_open_files();

// `role`: agent, shard or coordinator.
void add_process_figures(MetricPage& page, const std::string& role);

}  // namespace gradbus
