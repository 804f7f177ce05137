// One registered tensor as this rank sees it: its cell, its area, and the round it is in.
//
// The owner thread calls start, test and wait; several tensors may be used by several threads.
#pragma once

#include <atomic>

#include "client_lib/shm/cell.h"
#include "client_lib/shm/tensor_spec.h"
#include "common/clock.h"
#include "common/status.h"
#include "proto/numbers.h"

namespace gradbus {

class Session;

// How long something has been waited for, over all calls: a caller may wait in slices (Python does,
// to serve Ctrl-C between them), and the agent must hear of it all the same.
struct WaitClock {
  Nanos began = 0;  // 0: not waited for yet
  Nanos reported = 0;
  void begin(Nanos now) {
    if (began == 0) began = reported = now;
  }
};

class Tensor {
 public:
  Tensor(Session& session, TensorSpec spec, uint32_t id, const Cell& cell);

  const TensorSpec& spec() const { return spec_; }
  uint32_t id() const { return id_; }
  Session& session() { return session_; }
  Cell& cell() { return cell_; }
  uint64_t round() const { return round_; }
  bool in_flight() const { return in_flight_; }
  // Kinds that reduce: this rank's area. Others: the first block that this rank brings (all-to-all:
  // of world_size), or block 0.
  std::byte* data();

  // Posts the next round; the data is in place. BUSY (O905) while one is in flight.
  Status start(uint64_t bytes = 0);
  // One non-blocking attempt, working where it can: true when the round is over (or failed).
  bool attempt();
  // attempt() until the round is over or the deadline (P110). The result is in the area.
  Status wait(Nanos timeout);
  // After attempt() returned true: the result, and the round is closed.
  Status take_result();

  // Broadcast and all-gather: everybody on this node has copied the last round out of the shared
  // area, so it may be written.
  bool writable() const { return cell_.all_consumed(round_); }

  // A stream posts and consumes on the cell itself, a round per chunk; here it says how many it
  // did.
  void skip_rounds(uint64_t rounds) { round_ += rounds; }

  // Session, from the completion ring.
  void complete(uint64_t round, Code code);

 private:
  void post(uint64_t bytes);
  bool finished();
  bool attempt_local();

  Session& session_;
  const TensorSpec spec_;
  const uint32_t id_;
  Cell cell_;
  uint64_t round_ = 0;
  bool in_flight_ = false;
  WaitClock clock_;                     // of this round
  std::atomic<uint64_t> completed_{0};  // remote cells: last round the agent completed
  std::atomic<Code> code_{Code::kOk};
};

}  // namespace gradbus
