// The kinds of spans in a trace of a job (TraceSpan in shm_layout.h, messages in
// coordinator.proto).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace gradbus {

enum class TraceKind : uint32_t {
  // ---- of a rank
  kPhase = 1,   // of the training loop: `name`, such as "forward", "backward", "step" or a layer
  kWait = 2,    // the rank's thread waits for a round of a tensor: exposed communication
  kFlight = 3,  // from the start of a round to the moment in which the rank sees its end
  // ---- of a rank or an agent
  kRanks = 4,   // from the first post of the node's ranks to the last one
  kReduce = 5,  // the sum of the node's ranks
  // ---- of an agent, for its part in a round between nodes
  kEncode = 6,
  kSend = 7,
  kPeers = 8,  // from the first send to the first frame of another node
  kReceive = 9,
  kAccumulate = 10,  // received chunks are added
  kDecode = 11,
  kDeliver = 12,  // results are copied to the ranks
  kQueue = 13,    // from the last post on the node to the start: what a byte budget delays
};
inline constexpr uint32_t kTraceKindMax = 13;

// "wait for ranks"; as shown in a trace.
constexpr std::string_view trace_kind_name(TraceKind kind) {
  constexpr std::array<std::string_view, kTraceKindMax + 1> kNames = {
      "?",    "phase",          "wait",    "in flight",  "wait for ranks", "reduce",  "encode",
      "send", "wait for peers", "receive", "accumulate", "decode",         "deliver", "queue"};
  const auto number = static_cast<uint32_t>(kind);
  return kNames[number <= kTraceKindMax ? number : 0];
}

}  // namespace gradbus
