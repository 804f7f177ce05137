// The text form of a compression: "topk:ratio=0.001,ef=residual". It is a name from the registry,
// then options of that codec, of its error feedback and of its communicator, in any order.
//
// Pure; control plane only (it allocates). The canonical texts of two specs are equal exactly when
// the specs mean the same. So ranks register and compare this text.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "common/policy/spec_options.h"
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
  kPs,         // each agent owns a slice, sums it and sends the sum to all, compressed
};

// "allreduce"; "auto".
std::string_view communicator_name(Communicator communicator);
// Returns kAuto for an unknown name.
Communicator find_communicator(std::string_view name);

struct CompressionSpec {
  const CodecRow* codec = nullptr;
  CodecOptions options;  // the codec's, the memory's and "communicator"
  std::string canonical;

  bool none() const;  // dense exchange
  Communicator communicator() const;
};

// GB-O910 names the wrong part and suggests a correction for a typing error.
Result<CompressionSpec> parse_compression(std::string_view text);

// The canonical text; "" for "none" and for ""; an invalid text unchanged.
std::string canonical_compression(std::string_view text);

// Options of every codec: error feedback (ef, decay, momentum, ...) and communicator.
std::span<const CodecOption> common_codec_options();

}  // namespace gradbus
