// A job in one thread: every agent's collectives, their memory, and a network that delivers in any
// order, after any delay, and only into a free receive buffer. run() executes random events until
// none is left and says what went wrong first.
//
// It plays the engine and the transport with the least they promise. A send's bytes leave memory at
// any time between the action and on_sent(), and its frame can arrive long before or after
// on_sent(). Checked at once: memory under a send does not change; a round finishes once, with no
// send or buffer outstanding, after as many frames as the formula says, with the oracle's result
// and, for floats, with the bits that every other agent got; nothing appends more than kActionsMax
// actions.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/ring_oracle.h"
#include "tests/sim/ring_scenario.h"

namespace gradbus::sim {

class RingSimulation {
 public:
  explicit RingSimulation(Scenario scenario);

  // "" when all went well.
  std::string run();

  uint64_t frames_sent(uint32_t agent) const { return agents_[agent].frames_sent; }
  // Refused on purpose; so that a test can tell that it has offered any.
  uint64_t corrupt_offered() const { return corrupt_offered_; }

 private:
  enum class EventKind : uint8_t { kBegin, kReduce, kTransmit, kSent, kArrive, kCredit };
  struct Event {
    EventKind kind = EventKind::kBegin;
    uint32_t agent = 0;  // where it happens
    uint32_t tensor = 0;
    uint64_t time = 0;        // not before this many events
    uint64_t round = 0;       // kBegin, kCredit
    uint32_t chunk = 0;       // kReduce
    Action send = {};         // kTransmit, kSent
    FrameHeader header = {};  // kTransmit, kArrive
    Bytes payload = {};       // kSent: as it was when the send was posted; kArrive: as it left
  };
  // One tensor on one agent.
  struct Cell {
    CollectivePlan plan;
    std::unique_ptr<Collective> collective;
    std::vector<Bytes> areas;
    uint64_t finished = 0;
    uint64_t sends_open = 0;
    uint64_t buffers_held = 0;
    uint64_t frames_sent = 0;  // in this round
  };
  struct Agent {
    std::vector<uint32_t> ranks;
    std::vector<Cell> cells;
    std::vector<uint32_t> free_buffers;
    std::vector<Bytes> buffers;
    uint32_t wire_frames = 0;  // on their way to this agent
    uint64_t frames_sent = 0;
  };

  void make_agent(uint32_t index);
  void step();
  bool take_event(bool ignore_time, Event& event);
  bool possible(const Event& event) const;
  void execute(Event event);

  void begin(const Event& event);
  void reduce_locally(const Event& event);
  void transmit(Event event);
  void report_sent(const Event& event);
  void arrive(const Event& event);
  void credit(const Event& event);
  void offer_corrupt_frame(Cell& cell, const FrameHeader& good);
  void offer_corrupt_credit(Cell& cell, uint64_t good);

  void act(uint32_t agent, uint32_t tensor);
  void act(uint32_t agent, uint32_t tensor, const Action& action);
  void post_send(uint32_t agent, uint32_t tensor, const Action& action);
  void finalize(Cell& cell, const Action& action);
  void deliver(Cell& cell, const Action& action, const Bytes& payload);
  void finish(uint32_t agent, uint32_t tensor, const Action& action);
  void check_result(uint32_t agent, uint32_t tensor, uint64_t round);
  void check_end();

  uint64_t chunk_offset(const CollectivePlan& plan, const Action& action) const;
  Bytes chunk_bytes(const Cell& cell, const Action& action) const;
  std::string blocked_rounds() const;
  void expect(bool condition, const std::string& what);

  const Scenario scenario_;
  const RingOracle oracle_;
  Random random_;
  std::vector<Agent> agents_;
  std::vector<Event> events_;
  std::vector<Action> actions_;
  std::map<std::pair<uint32_t, uint64_t>, Bytes> first_result_;  // by tensor and round
  uint64_t now_ = 0;
  uint64_t corrupt_offered_ = 0;
  std::string error_;
};

}  // namespace gradbus::sim
