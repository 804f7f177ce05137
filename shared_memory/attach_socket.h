// The packets of the attach socket, sent and received whole with their file descriptors. Both sides
// use it; proto/attach.h describes the packets. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/fd.h"
#include "common/status.h"
#include "proto/attach.h"

namespace gradbus {

inline constexpr size_t kPacketFdsMax = 4;

struct Packet {
  AttachHeader header;
  std::vector<std::byte> bytes;  // the whole packet, header included
  std::vector<Fd> fds;

  // The packet as its struct. S211 when the size differs.
  template <typename T>
  Result<T> as() const;
};

enum class ReceivePacket : uint8_t { kPacket, kNothing, kEnd, kBad };

// Sends without blocking: kOk, kBusy (the socket is full) or kClosed.
Code send_packet(int socket, const void* packet, size_t bytes, const std::vector<int>& fds = {});
// Receives without blocking. kBad: not a packet of this protocol; `why` has the reason.
ReceivePacket receive_packet(int socket, Packet& packet, Status& why);
// Waits until `socket` is readable (or writable). Returns false when the time is over.
bool wait_readable(int socket, Nanos timeout);
bool wait_writable(int socket, Nanos timeout);

template <typename T>
T make_packet(uint32_t request = 0) {
  T packet;
  packet.header.type = static_cast<uint16_t>(T::kType);
  packet.header.bytes = sizeof(T);
  packet.header.request = request;
  return packet;
}

// Copies `text` into a fixed field, truncated to fit and terminated. A UTF-8 character that does
// not fit is left out whole: the reader refuses half of one.
template <size_t kBytes>
void set_text(char (&field)[kBytes], std::string_view text) {
  size_t length = std::min(text.size(), kBytes - 1);
  const auto is_inside = [&](size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
  };
  while (length > 0 && length < text.size() && is_inside(length)) --length;
  std::memcpy(field, text.data(), length);
  field[length] = '\0';
}

// The field as text. It ends at the terminator or, without one, at the end of the field.
template <size_t kBytes>
std::string get_text(const char (&field)[kBytes]) {
  return std::string(field, strnlen(field, kBytes));
}

Status bad_packet(const std::string& what);

template <typename T>
Result<T> Packet::as() const {
  if (bytes.size() != sizeof(T) || header.type != static_cast<uint16_t>(T::kType))
    return bad_packet("packet type " + std::to_string(header.type) + " has " +
                      std::to_string(bytes.size()) + " bytes, expected " +
                      std::to_string(sizeof(T)));
  T packet;
  std::memcpy(&packet, bytes.data(), sizeof(T));
  return packet;
}

}  // namespace gradbus
