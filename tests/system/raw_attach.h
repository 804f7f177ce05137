// Attaches to an agent packet by packet, without the library, which would refuse what the agent has
// to refuse. For the hostile programs of the system tests.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "common/clock.h"
#include "shared_memory/attach_socket.h"

inline int connect_to(const char* path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return socket;
  close(socket);
  return -1;
}

inline int join_by_packet(const std::string& job, int rank, const char* path, int ranks) {
  const int attached = connect_to(path);
  auto join = gradbus::make_packet<gradbus::JoinPacket>(1);
  gradbus::set_text(join.job, job);
  join.rank = rank;
  join.world_size = ranks;
  join.start_timeout_ms = 30'000;
  (void)gradbus::send_packet(attached, &join, sizeof(join));
  return attached;
}

// "ok", or why the agent refuses a registration, or "no answer".
inline std::string answer_to(int socket, uint32_t request,
                             gradbus::Nanos limit = 30 * gradbus::kSecond) {
  gradbus::Packet packet;
  gradbus::Status why;
  while (gradbus::wait_readable(socket, limit)) {
    const gradbus::ReceivePacket received = gradbus::receive_packet(socket, packet, why);
    if (received == gradbus::ReceivePacket::kNothing) continue;
    if (received != gradbus::ReceivePacket::kPacket) return "the connection ended";
    const auto notice = packet.as<gradbus::NoticePacket>();
    const bool is_notice =
        packet.header.type == static_cast<uint16_t>(gradbus::AttachType::kNotice) && notice.ok();
    if (is_notice && notice.value().code != 0) return gradbus::get_text(notice.value().text);
    if (const auto joined = packet.as<gradbus::JoinedPacket>();
        packet.header.type == static_cast<uint16_t>(gradbus::AttachType::kJoined) && joined.ok() &&
        joined.value().code != 0)
      return gradbus::get_text(joined.value().text);
    const auto answer = packet.as<gradbus::RegisteredPacket>();
    if (!answer.ok() || packet.header.request != request) continue;  // another packet
    return answer.value().code == 0 ? "ok" : gradbus::get_text(answer.value().text);
  }
  return "no answer";
}
