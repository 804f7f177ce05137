// The words of the coordinator's messages: names in quotes, sets of ranks, durations, tensor specs.
//
// Pure functions. Strings that came from an agent pass through clean_text before they are repeated,
// so a message stays one line of bounded length whatever the agent sent.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/status.h"
#include "gradbus/v1/coordinator.pb.h"
#include "proto/control.h"

namespace gradbus {

using RankSet = std::set<uint32_t>;

inline constexpr size_t kListedMax = 16;  // entries of any list in a message

// Control characters become '?'; a longer text is cut at a character and ends in "...".
std::string clean_text(std::string_view text, size_t bytes_max = kControlTextBytesMax);

// Not empty, at most bytes_max bytes, no control characters.
bool is_printable_name(std::string_view name, size_t bytes_max);

// "fc1.weight", in double quotes, at most 255 bytes.
std::string in_quotes(std::string_view name);
// Of a tensor: the name that the user gave to it, or to the operation that it serves.
std::string tensor_in_quotes(std::string_view name);

// "0, 1, 2"; more than eight ranks as ranges: "0-6, 8, 9", at most kListedMax of them.
std::string rank_list(const RankSet& ranks);
// "rank 3", "ranks 0, 1, 2"
std::string rank_phrase(const RankSet& ranks);

// "1.5 s"; whole seconds from ten minutes on.
std::string seconds_text(Nanos duration);

// "f32[100] all_reduce sum as fp16", "f32[100] broadcast root 2", "u8[64] all_gather"
std::string spec_text(const v1::TensorSpec& spec);

// error() with `what` cut to what an attach packet holds.
Status short_error(std::string_view id, std::string_view what, std::string_view next = {});

v1::Error to_proto(const Status& status);

}  // namespace gradbus
