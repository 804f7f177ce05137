#include "shared_memory/attach_socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "common/errors.h"

namespace gradbus {
namespace {

using ControlBuffer = std::array<std::byte, CMSG_SPACE(kPacketFdsMax * sizeof(int))>;

void put_fds(msghdr& message, ControlBuffer& control, const std::vector<int>& fds) {
  if (fds.empty()) return;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  std::memcpy(CMSG_DATA(part), fds.data(), fds.size() * sizeof(int));
}

Status check_packet(const Packet& packet, int flags) {
  if ((flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    return bad_packet("packet is longer than any allowed");
  if (packet.bytes.size() < sizeof(AttachHeader))
    return bad_packet("packet of " + std::to_string(packet.bytes.size()) + " bytes has no header");
  if (packet.header.magic != kAttachMagic) return bad_packet("the first four bytes are not GBA1");
  if (packet.header.version != kAttachVersion)
    return error("V801", "the other side speaks attach protocol " +
                             std::to_string(packet.header.version) + ", this one " +
                             std::to_string(kAttachVersion) + " (gradbus " GRADBUS_VERSION ")");
  if (packet.header.bytes != packet.bytes.size())
    return bad_packet("field bytes is " + std::to_string(packet.header.bytes) +
                      ", the packet has " + std::to_string(packet.bytes.size()));
  return {};
}

bool wait_for(int socket, short what, Nanos timeout) {
  pollfd waited{socket, what, 0};
  const Nanos deadline = monotonic_now() + timeout;
  for (;;) {
    const Nanos left = std::max<Nanos>(deadline - monotonic_now(), 0);
    const int ready = poll(&waited, 1, static_cast<int>((left + kMillisecond - 1) / kMillisecond));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

}  // namespace

Status bad_packet(const std::string& what) { return error("S211", what); }

Code send_packet(int socket, const void* packet, size_t bytes, const std::vector<int>& fds) {
  iovec piece{const_cast<void*>(packet), bytes};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) ControlBuffer control{};
  put_fds(message, control, fds);
  for (;;) {
    if (sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Code::kOk;
    if (errno == EINTR) continue;
    // ETOOMANYREFS: descriptors in flight that nobody has read yet.
    const bool later = errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS;
    return later ? Code::kBusy : Code::kClosed;
  }
}

ReceivePacket receive_packet(int socket, Packet& packet, Status& why) {
  packet.bytes.resize(kAttachPacketBytesMax);
  iovec piece{packet.bytes.data(), packet.bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kFdsPerMessageMax * sizeof(int))> control;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = 0;
  // ECONNRESET is reported once, before the last packets of the other side, which contain its
  // reason.
  for (int tries = 0; tries < 3; ++tries) {
    got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got >= 0 || (errno != EINTR && errno != ECONNRESET)) break;
  }
  if (got < 0 && errno == EAGAIN) return ReceivePacket::kNothing;
  if (got <= 0) return ReceivePacket::kEnd;
  packet.fds.clear();
  take_fds(message, packet.fds);
  packet.bytes.resize(static_cast<size_t>(got));
  std::memcpy(&packet.header, packet.bytes.data(),
              std::min(packet.bytes.size(), sizeof(AttachHeader)));
  why = check_packet(packet, message.msg_flags);
  return why.ok() ? ReceivePacket::kPacket : ReceivePacket::kBad;
}

bool wait_readable(int socket, Nanos timeout) { return wait_for(socket, POLLIN, timeout); }
bool wait_writable(int socket, Nanos timeout) { return wait_for(socket, POLLOUT, timeout); }

}  // namespace gradbus
