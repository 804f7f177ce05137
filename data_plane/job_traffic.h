// What the engine counts of a job: for the heartbeat, and for metrics. The engine's thread writes
// without locks, any thread reads.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "common/metrics/histogram.h"
#include "common/metrics/tally.h"
#include "proto/numbers.h"

namespace gradbus {

inline constexpr uint32_t kCollectiveKinds = 8;
// Peers (agents, then shards) that are counted one by one; further ones share the last place.
inline constexpr uint32_t kPeersCounted = 64;

struct JobTraffic {
  struct Operations {
    Tally rounds;
    Tally bytes;  // of the tensors, before compression
    DurationHistogram duration;
  };
  struct Peer {
    Tally sent_bytes;
    Tally received_bytes;
  };

  Operations& of(CollectiveKind kind) { return operations[static_cast<size_t>(kind) - 1]; }
  Peer& of_peer(uint32_t peer) { return peers[std::min(peer, kPeersCounted - 1)]; }

  std::atomic<uint64_t> sent_bytes{0};
  std::atomic<uint64_t> received_bytes{0};
  std::array<Operations, kCollectiveKinds> operations;  // by kind, from 1
  std::array<Peer, kPeersCounted> peers;
  DurationHistogram lateness;  // of a rank, behind the first one of the node
  StepHistogram staleness;
  Tally uncompressed_bytes;  // given to codecs
  Tally compressed_bytes;    // made by codecs
  Tally links_lost;
  std::atomic<double> fidelity_cosine{-2};  // of the last measured tensor; -2: none was measured
  Tally waiting_frames;                     // now
  DepthHistogram queued;                    // frames that waited when one more came
  Tally budget_bytes;                       // of rounds with a byte budget in flight, now
  Tally budget_bytes_max;                   // ... and the most so far
  Tally budget_delays;                      // rounds that waited for the budget
};

}  // namespace gradbus
