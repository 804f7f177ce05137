// Statistics of a transport since it was opened. Its thread counts; any thread reads.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace gradbus {

// Only one thread adds to it.
class Counter {
 public:
  void add(uint64_t more) {
    value_.store(value_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
  void subtract(uint64_t less) { add(-less); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// One of several paths (transport/failover).
struct PathTotals {
  std::string name;    // "tcp 10.0.0.1:4000", the address of this side
  uint64_t links = 0;  // links that use it now
};

struct TransportTotals {
  // Payload bytes, and how many of them a processor of this node copied between the caller's memory
  // and the network. A byte copied twice counts twice.
  uint64_t sent_bytes = 0;
  uint64_t received_bytes = 0;
  uint64_t send_copied_bytes = 0;
  uint64_t receive_copied_bytes = 0;
  uint64_t shared_bytes = 0;      // bytes sent through memory shared with a process of this machine
  std::vector<PathTotals> paths;  // in the order of preference; empty for a transport with one path
  uint64_t switches = 0;          // changes of links from one path to the next
};

}  // namespace gradbus
