// What ranks tell about their tensors, for `gradbus status --tensors`, and ask about them.
//
//   {"want": "explain", "why": {"grad/f32/0:a..b": "int8: 82 ms a step, dense 118 ms"}}  ->  {}
//   {"want": "fidelity", "tensors": ["grad/f32/0:a..b"]}
//     ->  {"fidelity": {"grad/f32/0:a..b": {"round": 100, "cosine": 0.99}}}
//
//   {"want": "chunks", "bytes": 131072}  ->  {"bytes": 131072}
//
// The last one sets the size of chunks of tensors that are registered from then on; 0: what the
// path wants. The answer is what they get, because a user's --chunk-bytes stays.
//
// Tensors that the job does not have, or that were not measured, are left out. The coordinator
// answers these itself, so both are short, and "want" comes first.
#pragma once

#include <string>
#include <string_view>

#include "server/coordinator/jobs/coordinator_job.h"

namespace gradbus {

inline constexpr size_t kNotesBytesMax = 256 << 10;
inline constexpr size_t kReasonBytesMax = 200;
inline constexpr uint64_t kTunedChunkBytesMin = 16 << 10;  // to kFramePayloadBytesMax

bool is_about_tensors(std::string_view question);

// GB-F102 for a question that cannot be read.
Result<std::string> answer_about_tensors(std::string_view question, CoordinatorJob& job);

}  // namespace gradbus
