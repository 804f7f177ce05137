// Packets of the attach socket, for tests of both ends.
#pragma once

#include <cstddef>

#include "shared_memory/attach_socket.h"

namespace gradbus::test {

// As it arrives at the other end.
template <typename T>
Packet as_packet(const T& packet) {
  Packet whole;
  whole.header = packet.header;
  const auto* const first = reinterpret_cast<const std::byte*>(&packet);
  whole.bytes.assign(first, first + sizeof(packet));
  return whole;
}

}  // namespace gradbus::test
