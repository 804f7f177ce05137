// Which codec each group of a running job gets: none, where no codec shortens the step.
//
// Pure; any thread. A group whose exchange is hidden anyway stays dense, because a codec would lose
// precision there and save nothing.
#pragma once

#include <vector>

#include "server/scheduling/job/job_plans.h"

namespace gradbus::scheduling {

struct CodecPlan {
  std::vector<uint32_t> codecs;  // by group: 0 is dense, n is number n - 1 of the codecs
  double step_us = 0;
};

struct CodecPlans {
  double dense_us = 0;
  std::vector<CodecPlan> plans;  // that are faster than dense, the fastest first
};

// `now`: groups of `workload`, and where ranks wait. `compressible`: by group. The codecs are
// `cluster.more_codecs`; its first one is dense. Plans use one codec each, and the best of all for
// each group.
CodecPlans plan_codecs(const Workload& workload, const Cluster& cluster, const JobPlan& now,
                       const std::vector<bool>& compressible);

}  // namespace gradbus::scheduling
