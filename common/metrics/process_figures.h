// What every daemon tells about itself: its process, its version and what it has logged. Any
// thread.
#pragma once

#include <string>

#include "common/metrics/metric_page.h"

namespace gradbus {

// `role`: agent, shard or coordinator.
void add_process_figures(MetricPage& page, const std::string& role);

}  // namespace gradbus
