// Process sets: a session for some ranks of another one. Nothing here runs per step.
#pragma once

#include <memory>
#include <vector>

#include "client_lib/src/session.h"

namespace gradbus {

// Called by every rank of `session` with the same `ranks`; null where this rank is not a member.
// The set is the job "<job>/<k>", k counting the calls. Blocks until all have agreed and all
// members have joined. Errors: O902 naming the ranks and two of their lists; O900 for a list that
// no set can have (the same on every rank); those of the exchange and of joining a job.
Result<std::unique_ptr<Session>> open_process_set(Session& session,
                                                  const std::vector<int32_t>& ranks);

}  // namespace gradbus
