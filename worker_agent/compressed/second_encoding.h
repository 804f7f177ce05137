// What encodes the sum of a unit's payloads once more, on the node that has summed them: an agent
// that owns the unit (owned_unit.cc), or a parameter-server shard (shard/payload_tensor.h).
#pragma once

#include <memory>

#include "compression/memory.h"
#include "compression/registry.h"

namespace gradbus {

std::unique_ptr<Codec> second_codec(const CompressionSpec& spec, const CodecShape& shape);

// It keeps what the second encoding leaves out (two-way error feedback, as BytePS and MergeComp's
// parameter-server communicator do). It never has momentum: that is the senders'.
MemoryOptions second_memory(const CompressionSpec& spec, uint32_t agents);

}  // namespace gradbus
