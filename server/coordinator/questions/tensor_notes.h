// Facts that ranks report about their tensors, for `gradbus status --tensors`, and questions of
// ranks about them.
//
//   {"want": "explain", "why": {"grad/f32/0:a..b": "int8: 82 ms a step, dense 118 ms"}}  ->  {}
//   {"want": "fidelity", "tensors": ["grad/f32/0:a..b"]}
//     ->  {"fidelity": {"grad/f32/0:a..b": {"round": 100, "cosine": 0.99}}}
//
//   {"want": "chunks", "bytes": 131072}  ->  {"bytes": 131072}
//
// The last one sets the chunk size of tensors that are registered later; 0: chosen by the path. The
// answer is the size that they get, because a user's --chunk-bytes has precedence.
//
// The answer leaves out tensors that the job does not have or that were not measured. The
// coordinator itself answers these questions, so questions and answers are short. "want" comes
// first.
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
