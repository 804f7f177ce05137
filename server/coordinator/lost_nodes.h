// The agents and shards that went away without a goodbye. Part of Coordinator; pure.
//
// `gradbus status` reports them until a node of the same name attaches, an administrator forgets
// it, or a day has passed. Without this memory an idle node could die and nobody would notice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "common/clock.h"

namespace gradbus {

inline constexpr size_t kLostNodesMax = 256;  // the oldest ones are dropped
inline constexpr Nanos kLostNodeKept = 24 * 3600 * kSecond;

class LostNodes {
 public:
  struct Node {
    std::string name;
    uint64_t pid = 0;
    bool shard = false;
    std::string why;
    Nanos at = 0;
  };

  void add(Node node);
  // False: no lost node has this name.
  bool forget(const std::string& name);
  void forget_old(Nanos now);
  const std::deque<Node>& list() const { return nodes_; }  // the oldest first

 private:
  std::deque<Node> nodes_;
};

}  // namespace gradbus
