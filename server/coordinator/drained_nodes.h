// The nodes that get no new jobs, by name. Part of Coordinator; pure.
//
// A node stays drained when its agent is restarted. Agents keep their own state for a coordinator
// that is restarted.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "common/clock.h"

namespace gradbus {

inline constexpr size_t kDrainedNodesMax = 4096;

class DrainedNodes {
 public:
  struct Node {
    std::string reason;  // who asked, and why
    Nanos at = 0;
  };

  bool full() const { return nodes_.size() >= kDrainedNodesMax; }
  void add(const std::string& name, std::string reason, Nanos now) {
    nodes_[name] = {std::move(reason), now};
  }
  // False: it was not drained.
  bool remove(const std::string& name) { return nodes_.erase(name) > 0; }
  bool has(const std::string& name) const { return nodes_.contains(name); }
  const std::map<std::string, Node>& list() const { return nodes_; }

 private:
  std::map<std::string, Node> nodes_;
};

}  // namespace gradbus
