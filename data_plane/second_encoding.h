// Encodes the sum of a partition's payloads again, on the node that has summed them. That is the
// agent that owns the partition (owner_reduce.cc) or a parameter-server shard
// (server/parameter_server/payload_tensor.h).
#pragma once

#include <memory>

#include "compression/error_feedback.h"
#include "compression/registry.h"

namespace gradbus {

// `agents` votes were summed; their majority counts as much as they do together.
std::unique_ptr<Codec> second_codec(const CompressionSpec& spec, const CodecShape& shape,
                                    uint32_t agents);

// It keeps the residual of the second encoding: two-way error feedback, as in BytePS and in
// MergeComp's parameter-server communicator. It never has momentum, because the senders keep that.
ErrorFeedbackOptions second_error_feedback(const CompressionSpec& spec, uint32_t agents);

}  // namespace gradbus
