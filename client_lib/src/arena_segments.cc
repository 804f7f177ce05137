#include "client_lib/src/arena_segments.h"

#include <algorithm>

#include "client_lib/src/forks.h"

namespace gradbus {

void ArenaSegments::add(std::shared_ptr<Segment> segment) {
  make_private_in_children(segment);
  segments_.push_back(std::move(segment));
}

Status ArenaSegments::take(Packet& packet) {
  const Result<SegmentPacket> info = packet.as<SegmentPacket>();
  if (!info.ok()) return info.status();
  if (packet.fds.size() != 1 || info.value().segment != segments_.size())
    return bad_packet("segment " + std::to_string(info.value().segment) + ", expected " +
                      std::to_string(segments_.size()));
  auto segment = Segment::open(std::move(packet.fds[0]), info.value().bytes);
  if (!segment.ok()) return segment.status();
  add(segment.take());
  return {};
}

Result<uint32_t> ArenaSegments::add_own(size_t bytes) {
  auto segment = Segment::anonymous(bytes);
  if (!segment.ok()) return segment.status();
  const auto unused = std::ranges::find(segments_, nullptr);
  const auto index = static_cast<uint32_t>(unused - segments_.begin());
  unused == segments_.end() ? segments_.push_back(segment.take()) : void(*unused = segment.take());
  return index;
}

std::shared_ptr<Segment> ArenaSegments::with(const std::byte* address) const {
  const auto found = std::ranges::find_if(segments_, [&](const auto& segment) {
    return segment != nullptr && address >= segment->at(0) &&
           address < segment->at(segment->bytes());
  });
  return found == segments_.end() ? nullptr : *found;
}

void ArenaSegments::remove(const std::shared_ptr<Segment>& segment) {
  std::ranges::replace(segments_, segment, std::shared_ptr<Segment>());
}

}  // namespace gradbus
