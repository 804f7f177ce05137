// The coordinator's options. main.cc sets them from flags, and tests set them directly.
#pragma once

#include <cstdint>
#include <string>

#include "common/clock.h"
#include "common/trust/secret.h"
#include "server/coordinator/jobs/late_rule.h"
#include "server/coordinator/jobs/loss_rule.h"
#include "server/coordinator/planning/planner.h"

namespace gradbus {

struct CoordinatorOptions {
  uint32_t heartbeat_ms = 500;
  uint32_t lease_ms = 1500;  // an agent silent for longer is lost
  PlanOptions plan;
  LateRuleOptions late;
  LossRuleOptions loss;
  bool equal_shards = false;     // whatever their networks
  bool keep_shards = false;      // running jobs take no new ones; a lost one's chunks stay single
  Nanos deadlock = 2 * kSecond;  // all ranks must have waited for this time before O903
  std::string page = {};         // HOST:PORT of the web page, for status; "": none
  uint64_t seed = 0;             // of job ids and the incarnation
  Secret key = {};               // random; jobs' secrets and link keys are made from it
};

// Every queue and table has a maximum.
inline constexpr size_t kAgentsMax = 4096;
inline constexpr size_t kLiveJobsMax = 1024;
inline constexpr size_t kEndedJobsMax = 100;
inline constexpr Nanos kEndedJobKept = 600 * kSecond;
inline constexpr size_t kStatusPathsMax = 1024;    // in one StatusReply
inline constexpr size_t kStatusTensorsMax = 4096;  // in one StatusReply

}  // namespace gradbus
