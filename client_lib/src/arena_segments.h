// The shared memory of a session's tensors: the agent's arena, segment by segment, as it grows. In
// a world of one, each tensor has a segment of its own. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/segment.h"
#include "common/status.h"
#include "shared_memory/attach_socket.h"

namespace gradbus {

class ArenaSegments {
 public:
  // The next segment of the agent's arena.
  void add(std::shared_ptr<Segment> segment);
  // The same from the agent's packet. S211 for a segment that is not the next one.
  Status take(Packet& packet);
  // A segment of this process alone. Returns its index, which may have been a removed one's.
  Result<uint32_t> add_own(size_t bytes);

  size_t size() const { return segments_.size(); }
  const Segment& at(uint32_t index) const { return *segments_[index]; }
  // The segment with this address; none: null.
  std::shared_ptr<Segment> with(const std::byte* address) const;
  // Unmapped when nobody else has it.
  void remove(const std::shared_ptr<Segment>& segment);

 private:
  std::vector<std::shared_ptr<Segment>> segments_;  // by index; null: removed
};

}  // namespace gradbus
