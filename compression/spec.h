// What a person writes to choose a compression: "topk:ratio=0.001,ef=residual". A name from the
// registry, then options of that codec, of its memory and of its way to travel, in any order.
//
// Pure; control plane only (it allocates). The canonical text of a spec is equal on two ranks
// exactly when they ask for the same thing, so it is what they register and what is compared.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "common/spec_options.h"
#include "common/status.h"

namespace gradbus {

using CodecOption = SpecOption;
using CodecOptions = SpecOptions;

struct CodecRow;  // registry.h

// How payloads travel between agents (MergeComp's three communicators).
enum class Communicator : uint8_t {
  kAuto,       // the planner chooses by cost among those that fit
  kAllReduce,  // dense vectors summed in flight: linear codecs
  kAllGather,  // everybody gets everybody's payload
  kPs,         // each agent owns a slice, sums it and sends it out again, compressed
};

// "allreduce"; "auto".
std::string_view communicator_name(Communicator communicator);
// kAuto for a name that there is not.
Communicator find_communicator(std::string_view name);

struct CompressionSpec {
  const CodecRow* codec = nullptr;
  CodecOptions options;  // the codec's, the memory's and "communicator"
  std::string canonical;

  bool none() const;  // dense exchange
  Communicator communicator() const;
};

// GB-O910 names the part that is wrong and, for a slip of the hand, what was meant.
Result<CompressionSpec> parse_compression(std::string_view text);

// The canonical text; "" for "none" and for ""; a text with a mistake in it as it is.
std::string canonical_compression(std::string_view text);

// Options that every codec takes: memory (ef, decay, momentum, ...) and communicator.
std::span<const CodecOption> common_codec_options();

}  // namespace gradbus
