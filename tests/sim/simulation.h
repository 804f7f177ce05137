// A job in one thread: every agent's collectives, their memory, and a network that delivers in any
// order, after any delay, and only into a free receive buffer of the link. run() executes random
// events until none is left and says what went wrong first.
//
// It plays the engine and the transport with the least they promise. A send's bytes leave memory at
// any time between the action and on_sent(), and its frame can arrive long before or after
// on_sent(). Checked at once: memory under a send does not change; a round finishes once, with no
// send or buffer outstanding, with the oracle's result and, for floats, with the bits that every
// other rank got; nothing appends more actions or has more sends open than was announced. At the
// end: as many frames as the formulas say.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tests/sim/oracle.h"
#include "tests/sim/scenario.h"

namespace gradbus::sim {

class Simulation {
 public:
  explicit Simulation(Scenario scenario);

  // "" when all went well.
  std::string run();

  uint64_t frames_sent(uint32_t agent) const { return agents_[agent].frames_sent; }
  // Refused on purpose; so that a test can tell that it has offered any.
  uint64_t corrupt_offered() const { return corrupt_offered_; }
  // By tensor, round and rank: what each rank got of the kinds that reduce.
  using Results = std::map<std::tuple<uint32_t, uint64_t, uint32_t>, Bytes>;
  const Results& results() const { return results_; }

 private:
  enum class EventKind : uint8_t { kBegin, kReduce, kTransmit, kSent, kArrive, kCredit };
  struct Event {
    EventKind kind = EventKind::kBegin;
    uint32_t agent = 0;  // where it happens
    uint32_t tensor = 0;
    uint64_t time = 0;        // not before this many events
    uint64_t round = 0;       // kBegin, kCredit
    uint32_t chunk = 0;       // kReduce
    uint32_t from = 0;        // kArrive, kCredit
    Action send = {};         // kTransmit, kSent
    FrameHeader header = {};  // kTransmit, kArrive
    Bytes payload = {};       // kSent: as it was when the send was posted; kArrive: as it left
  };
  // One tensor on one agent.
  struct LocalReduction {
    CollectivePlan plan;
    std::unique_ptr<Collective> collective;
    std::vector<Bytes> rank_buffers;  // kinds that reduce: by local rank; else one with all blocks
    std::vector<Bytes> stash;
    std::vector<uint64_t> sends_open;  // by peer
    uint64_t finished = 0;
    uint64_t buffers_held = 0;
  };
  struct Agent {
    std::vector<uint32_t> ranks;
    std::vector<LocalReduction> local_reductions;
    std::vector<Bytes> buffers;  // of all links to this agent, one link after the other
    uint64_t frames_sent = 0;
  };
  struct Link {
    std::vector<uint32_t> free_buffers;
    uint32_t wire_frames = 0;
  };

  void make_agent(uint32_t index);
  void make_local_reduction(uint32_t index, uint32_t tensor);
  Link& link(uint32_t from, uint32_t to) { return links_[from * scenario_.agents + to]; }
  void step();
  bool take_event(bool ignore_time, Event& event);
  bool possible(const Event& event);
  void execute(Event event);

  void begin(const Event& event);
  void write_inputs(const Agent& agent, LocalReduction& local_reduction, const Event& event);
  void reduce_locally(const Event& event);
  void transmit(Event event);
  void report_sent(const Event& event);
  void arrive(const Event& event);
  void credit(const Event& event);
  void offer_corrupt_frame(LocalReduction& local_reduction, const Event& good);
  void offer_corrupt_credit(LocalReduction& local_reduction, const Event& good);

  // ---- simulation_actions.cc
  void act(uint32_t agent, uint32_t tensor);
  void act(uint32_t agent, uint32_t tensor, const Action& action);
  void post_send(uint32_t agent, uint32_t tensor, const Action& action);
  void accumulate(LocalReduction& local_reduction, const Action& action, const Bytes& payload);
  void finalize(const Agent& agent, LocalReduction& local_reduction, const Action& action);
  void deliver(LocalReduction& local_reduction, const Action& action, const Bytes& payload);
  void release(uint32_t agent, uint32_t tensor, uint32_t buffer);
  void finish(uint32_t agent, uint32_t tensor, const Action& action);
  void check_sums(const Agent& agent, uint32_t tensor, uint64_t round);
  void check_blocks(const Agent& agent, uint32_t tensor, uint64_t round);
  void check_end();

  uint64_t chunk_offset(const CollectivePlan& plan, const Action& action) const;
  Bytes chunk_bytes(const LocalReduction& local_reduction, const Action& action) const;
  std::string blocked_rounds() const;
  void expect(bool condition, const std::string& what);

  const Scenario scenario_;
  const Oracle oracle_;
  Random random_;
  std::vector<Agent> agents_;
  std::vector<Link> links_;
  std::vector<Event> events_;
  std::vector<Action> actions_;
  Results results_;
  uint64_t now_ = 0;
  uint64_t corrupt_offered_ = 0;
  std::string error_;
};

}  // namespace gradbus::sim
