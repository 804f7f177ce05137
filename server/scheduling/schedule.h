// The schedules, by name: a table of planners. docs/design/scheduling.md explains each.
//
// A planner is a pure function of the workload, the cluster and the options. It measures nothing
// and remembers nothing, so every caller that passes the same values gets the same plan.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/status.h"
#include "server/scheduling/plan.h"
#include "server/scheduling/simulator.h"
#include "server/scheduling/workload.h"

namespace gradbus::scheduling {

// More would take minutes to simulate.
inline constexpr uint64_t kOperationsMax = 200'000;
// Below this a partition is shorter than a frame's header is worth.
inline constexpr uint64_t kPartitionBytesMin = 4096;

// What a user may force. The defaults are those of the systems that the schedules come from.
struct ScheduleOptions {
  uint64_t bucket_bytes = 25 << 20;       // ddp: PyTorch's bucket_cap_mb
  uint64_t first_bucket_bytes = 1 << 20;  // ddp: the first bucket goes early
  uint64_t fusion_bytes = 128 << 20;      // fusion: HOROVOD_FUSION_THRESHOLD
  uint64_t partition_bytes = 4'096'000;   // bytescheduler: BYTEPS_PARTITION_BYTES
  uint64_t budget_bytes = 4'096'000;      // bytescheduler: at least a partition
  uint64_t dear_bytes = 25 << 20;         // dear: DeAR's THRESHOLD
  uint32_t nearby_layers = 0;             // dear: layers per group; 0: dear_bytes decides
  uint32_t groups = 0;                    // mergecomp: exact number; 0: searched
};

using Planner = Result<Plan> (*)(const Workload&, const Cluster&, const ScheduleOptions&);

struct Schedule {
  std::string_view name;
  std::string_view summary;
  Planner planner;
};

// `auto` is the last row; it chooses among the others.
std::span<const Schedule> schedules();

// A valid plan. GB-F100 for an unknown name, an option that is impossible for this workload, or a
// codec that the schedule cannot carry.
Result<Plan> make_plan(std::string_view name, const Workload& workload, const Cluster& cluster,
                       const ScheduleOptions& options);

}  // namespace gradbus::scheduling
