// The order in which operations with a byte budget begin on a node, and the budget itself: rounds
// that have begun and not ended hold at most as many bytes as their tensors allow. A tensor that is
// larger than its budget runs alone. It is a pure state machine without sockets, clocks and bytes.
//
// WHY ONE ORDER. An operation ends only after every node has begun it. If each node filled its
// budget by itself, one might hold it with operation A and another one with B, and both would wait
// for ever. So agent 0, the leader, decides for the job:
//   * When all ranks of a node have posted a round, its agent tells the leader that it is ready.
//   * The leader gives the next turn to the most urgent round that is ready on ALL nodes, once that
//     round fits into the leader's budget. Others wait, also smaller ones, so a large round cannot
//     starve. The leader sends the number of the turn to every agent.
//   * Every agent begins rounds in the order of their turns, each as soon as it fits.
//
// WHY NOTHING BLOCKS. Take the first turn that has not ended everywhere. All earlier ones have
// ended, and later ones do not begin before it. So a node that has not begun it has nothing in
// flight, and begins it. No rank is waited for, because all have posted it. So it ends.
//
// WHY NOTHING STARVES. Rounds wait in a SendQueue, whose order lets a bounded number overtake.
//
// Engine thread only. Nothing allocates after add().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/status.h"
#include "data_plane/send_queue.h"

namespace gradbus {

class StartOrder {
 public:
  struct Limits {
    uint64_t bytes = 0;         // of the tensor
    uint64_t budget_bytes = 1;  // may be in flight while it is
    uint32_t priority = 0;      // 0 is the most urgent
  };
  struct Turn {
    uint32_t tensor = 0;
    uint64_t round = 0;
    uint64_t number = 0;  // from 1, without gaps
  };

  StartOrder(uint32_t agent, uint32_t agents) : agent_(agent), agents_(agents) {}

  bool leads() const { return agent_ == 0; }
  void add(uint32_t tensor, const Limits& limits);
  // It has no round that waits or runs.
  void remove(uint32_t tensor);
  bool has(uint32_t tensor) const { return find(tensor) != nullptr; }

  // All ranks of this node have posted the round. Agents other than the leader tell the leader.
  Status ready(uint32_t tensor, uint64_t round) { return on_ready(agent_, tensor, round); }
  // On the leader: agent `from` is ready. GB-D601 unless the round can be the next one.
  Status on_ready(uint32_t from, uint32_t tensor, uint64_t round);
  // On the others: the leader has given a turn. GB-D601 unless this node is ready for it.
  Status on_turn(const Turn& turn);

  // The round that begins now, if one fits. The leader tells all others. Ask until there is none.
  std::optional<Turn> next();
  // A round of the tensor is over; one that did not wait for a turn is ignored.
  void ended(uint32_t tensor);

  uint64_t bytes_in_flight() const { return bytes_in_flight_; }
  uint64_t bytes_in_flight_max() const { return bytes_in_flight_max_; }  // so far
  uint64_t delayed() const { return delayed_; }  // rounds that waited for the budget

 private:
  struct Entry {
    Limits limits;
    uint64_t round = 0;        // the latest one that this node is ready for
    uint64_t asked_round = 0;  // leader: the latest one that any node is ready for
    uint32_t agents_ready = 0;
    bool waits = false;  // from ready() to the turn's begin
    bool has_turn = false;
    bool runs = false;
    bool delayed = false;
  };
  Entry* find(uint32_t tensor) const {
    return tensor < entries_.size() ? entries_[tensor].get() : nullptr;
  }
  bool fits(Entry& entry);
  std::optional<Turn> next_of_leader();
  std::optional<Turn> next_of_turns();
  void begin(Entry& entry);

  const uint32_t agent_;
  const uint32_t agents_;
  std::vector<std::unique_ptr<Entry>> entries_;  // by tensor, with holes
  size_t live_ = 0;                              // of them
  SendQueue ready_;                              // leader: tensors that are ready on all nodes
  std::vector<Turn> turns_;                      // others: given and not begun, in any order
  uint64_t last_turn_ = 0;                       // the latest one that began here
  uint32_t running_ = 0;
  uint64_t bytes_in_flight_ = 0;
  uint64_t bytes_in_flight_max_ = 0;
  uint64_t delayed_ = 0;
};

}  // namespace gradbus
