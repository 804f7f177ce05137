// The state machine behind simulate(): three streams, the operations of one step, and a clock that
// jumps from one end to the next. See simulator.h for the rules.
//
// One thread. Every operation of a step is complete before the next backward pass begins, because
// that needs each layer's forward pass. So one state for each operation is enough.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <set>
#include <vector>

#include "server/scheduling/simulator.h"

namespace gradbus::scheduling {

class StepSimulation {
 public:
  StepSimulation(const Workload& workload, const Plan& plan, const Cluster& cluster);

  // Runs until the next forward pass begins, and returns when that is. The first call returns 0.
  double run_to_next_step();

  // All that has ended, and what runs now, as far as it is.
  std::vector<Interval> intervals() const;
  uint64_t in_flight_bytes_max() const { return in_flight_bytes_max_; }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  struct Server {
    double begin_us = 0;
    double end_us = kNever;  // kNever: idle
    Activity activity = Activity::kForward;
    uint32_t index = 0;
    bool idle() const { return end_us == kNever; }
  };
  struct Progress {
    OperationTimes times;
    uint64_t bytes = 0;
    uint32_t gradients_missing = 0;
    double sent_us = 0;  // of times.exchange_us
  };
  // Of what is ready for the link: the most urgent, then the oldest.
  struct Waiting {
    int64_t priority;
    uint64_t arrival;
    uint32_t operation;
    bool operator<(const Waiting& other) const {
      return priority != other.priority ? priority < other.priority : arrival < other.arrival;
    }
  };

  void index_pieces();
  void advance();
  void begin(Stream stream, Activity activity, uint32_t index, double duration_us);
  Interval finish(Stream stream);
  void complete(const Interval& done);

  // Compute
  void dispatch_compute();
  bool may_compute() const;
  void begin_layer();
  void end_backward(uint32_t layer);
  void begin_backward();

  // Operations
  void release(uint32_t operation);
  void to_link(uint32_t operation);
  void after_link(uint32_t operation);
  void deliver(uint32_t operation);

  // Codec
  void dispatch_codec();
  bool take_coding(Stream stream, bool may_decode);

  // Link
  void dispatch_link();
  void commit();
  void interrupt_for(int64_t priority);
  void end_segment(const Interval& done);

  Server& server(Stream stream) { return servers_[static_cast<size_t>(stream)]; }

  const Workload& workload_;
  const Plan& plan_;
  const Cluster& cluster_;
  const bool codes_on_compute_;

  double now_us_ = 0;
  Server servers_[3];
  std::vector<Interval> intervals_;

  uint32_t steps_ = 0;   // that have begun
  size_t position_ = 0;  // in forward and backward: 0 to 2 * layers - 1
  bool backward_ended_ = false;
  std::vector<uint32_t> undelivered_of_;  // pieces, by layer: what its next forward pass waits for
  uint32_t undelivered_ = 0;

  std::vector<Progress> progress_;
  std::vector<std::vector<uint32_t>> reductions_of_;  // by layer: operations, one for each piece
  std::vector<std::vector<uint32_t>> followers_of_;   // by operation: all-gathers
  std::vector<uint32_t> deliveries_of_;               // by layer: pieces
  std::vector<uint32_t> deferred_;                    // all-gathers that wait for the backward end

  std::deque<uint32_t> to_encode_;
  std::deque<uint32_t> to_decode_;
  std::set<Waiting> waiting_;
  std::deque<Waiting> committed_;  // in the order in which they go
  Waiting sending_{};
  bool interrupted_ = false;  // its segment ends before all of it is sent
  uint64_t arrivals_ = 0;
  uint64_t in_flight_bytes_ = 0;
  uint64_t in_flight_bytes_max_ = 0;
};

}  // namespace gradbus::scheduling
