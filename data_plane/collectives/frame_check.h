// The header checks of all collectives, and the messages of their refusals. Pure.
#pragma once

#include <string>
#include <string_view>

#include "data_plane/collectives/collective.h"

namespace gradbus {

// Returns kCorrupt with the message "frame of tensor 7, round 2, chunk 1: " and `what`.
Status refuse_frame(const FrameHeader& header, std::string_view what);
Status refuse_credit(uint64_t round, std::string_view why);

Status expect_field(const FrameHeader& header, std::string_view field, uint64_t value,
                    uint64_t expected);
Status expect_below(const FrameHeader& header, std::string_view field, uint64_t value,
                    uint64_t limit);

// Checks that collective, codec, dtype and op are those of the tensor.
Status check_signature(const CollectivePlan& plan, const FrameHeader& header);

}  // namespace gradbus
