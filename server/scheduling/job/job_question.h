// Answers the questions of running jobs: which plan fits what their ranks have measured, and which
// point a search should try next.
//
// Pure, deterministic; any thread. Question and answer are JSON. A question comes from a training
// process, so every number is checked. GB-F102 for bad JSON and bad layers, GB-F100 for an
// impossible option.
//
//   {"want": "plan", "schedule": "mergecomp", "groups": 2,
//    "network": {"startup_us": 180, "byte_ns": 8.4},
//    "codec": {"name": "topk", "startup_us": 300, "byte_ns": 1.2},
//    "forward": true,
//    "now": {"waits": "backward", "groups": [[1], [0]]},
//    "workload": {"layers": [...], "backward_order": [...]}}
//
// "network" and "codec" are end-to-end times of the job's own all-reduce of m bytes: startup + m *
// byte. "forward": the ranks may wait in the next forward pass. "now" is the plan that runs.
// "codec" and "now" may be missing. The answer:
//
//   {"schedule": "mergecomp", "waits": "backward", "groups": [[5, 4], [3, 2, 1, 0]],
//    "compressed": [true, false], "us": 1200, "now_us": 1400, "exposed_us": 100, "why": "...",
//    "others": [...]}
//
// "others" are plans of auto with other waits, for trials: the model may be wrong.
// A group lists layers. Groups come in the order in which they are ready. "waits" is backward (the
// end of the pass), layer (most urgent layers first) or split (partial sums first, then results).
//
//   {"want": "codecs", "network": ..., "workload": ..., "now": {..., "dense": [1]},
//    "codecs": [{"name": "fp16", "startup_us": 300, "byte_ns": 1.2}, ...]}
//
// Which codec should each group of "now" get? Groups in "dense" have nothing to compress. The
// answer has the plans that are faster than dense, the fastest first. 0 is dense, n is number n - 1
// of the question's codecs:
//
//   {"dense_us": 1400, "plans": [{"codecs": [1, 0], "us": 900}, ...]}
//
// {"want": "check_codecs", "codecs": ["fp16", ...]} is answered by {}, or by the codec that is
// wrong (GB-O910).
//
//   {"want": "point", "dimensions": [{"name": "bucket_bytes", "min": 1, "max": 9, "log": true}],
//    "measured": [{"point": [3], "cost": 17.5}]}
//
// The answer is {"point": [4.2]}. The search remembers nothing, so each question has all that was
// measured.
#pragma once

#include <string>
#include <string_view>

#include "common/status.h"

namespace gradbus::scheduling {

inline constexpr size_t kJobLayersMax = 1024;  // planning them takes seconds
inline constexpr size_t kJobCodecsMax = 8;
inline constexpr size_t kSearchDimensionsMax = 6;
inline constexpr size_t kSearchPointsMax = 64;

Result<std::string> answer_job(std::string_view question);

}  // namespace gradbus::scheduling
