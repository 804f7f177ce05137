#include "client_lib/src/agent_connection.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/errors.h"
#include "common/system_error.h"
#include "proto/shm_layout.h"

namespace gradbus {
namespace {

// The agent ends a join itself at start_timeout; this is how much longer we wait for its sentence.
constexpr Nanos kJoinReplyGrace = 3 * kSecond;
constexpr Nanos kStopLookEvery = 50 * kMillisecond;

Status agent_lost() { return error("A301", "the agent of this node closed its connection"); }

Status cannot_open(const std::string& path, int cause) {
  return system_error(cause == EACCES || cause == EPERM ? "A302" : "A300", "socket " + path, cause);
}

JoinPacket join_packet(const LaunchIdentity& identity, Nanos start_timeout) {
  auto packet = make_packet<JoinPacket>(1);
  set_text(packet.job, identity.job);
  set_text(packet.library, GRADBUS_VERSION);
  packet.rank = identity.rank;
  packet.world_size = identity.world_size;
  packet.pid = getpid();
  packet.start_timeout_ms = static_cast<uint64_t>(start_timeout / kMillisecond);
  return packet;
}

Status check_joined(const JoinedPacket& joined, size_t fds) {
  if (joined.code != 0) return Status(static_cast<Code>(joined.code), get_text(joined.text));
  if (joined.layout_version != kShmLayoutVersion)
    return error("V801", "the agent's shared-memory layout is " +
                             std::to_string(joined.layout_version) + ", this library's is " +
                             std::to_string(kShmLayoutVersion));
  if (fds != 3)
    return bad_packet("joined with " + std::to_string(fds) + " descriptors, expected 3");
  if (joined.local_size == 0 || joined.local_size > kLocalRanksMax ||
      joined.local_rank >= joined.local_size || joined.agents == 0)
    return bad_packet("joined with local rank " + std::to_string(joined.local_rank) + " of " +
                      std::to_string(joined.local_size));
  return {};
}

}  // namespace

Result<AgentConnection> AgentConnection::open(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return cannot_open(path, ENAMETOOLONG);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket.valid() ||
      connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
    return cannot_open(path, errno);
  return AgentConnection(std::move(socket));
}

Result<Attachment> AgentConnection::join(const LaunchIdentity& identity, Nanos start_timeout,
                                         const Stop& stop) {
  const JoinPacket packet = join_packet(identity, start_timeout);
  const Status sent = send(&packet, sizeof(packet));
  // An agent that takes no client says why, and may have closed the connection before it is asked.
  const Nanos patience = sent.ok() ? start_timeout + kJoinReplyGrace : kSecond;
  Result<Packet> answer = await_joined(monotonic_now() + patience, stop);
  if (!answer.ok()) return sent.ok() ? answer.status() : sent;
  const Result<JoinedPacket> joined = answer.value().as<JoinedPacket>();
  if (!joined.ok()) return joined.status();
  GRADBUS_RETURN_IF_ERROR(check_joined(joined.value(), answer.value().fds.size()));

  std::vector<Fd>& fds = answer.value().fds;
  auto channel = Segment::open(std::move(fds[0]), joined.value().channel_bytes);
  if (!channel.ok()) return channel.status().with_context("channel");
  auto arena = Segment::open(std::move(fds[1]), joined.value().arena_bytes);
  if (!arena.ok()) return arena.status().with_context("arena");
  return Attachment{joined.value(), channel.take(), arena.take(), std::move(fds[2])};
}

Result<Packet> AgentConnection::await_joined(Nanos deadline, const Stop& stop) {
  for (;;) {
    GRADBUS_RETURN_IF_ERROR(stop());
    const Nanos left = deadline - monotonic_now();
    if (left <= 0) return error("J404", "the agent did not answer the join", "gradbus status");
    if (!wait(std::min(left, kStopLookEvery))) continue;
    Packet packet;
    const Status received = receive(packet);
    if (received.code() == Code::kBusy) continue;
    if (!received.ok()) return received;
    return packet;
  }
}

Status AgentConnection::send(const void* packet, size_t bytes) {
  const Nanos deadline = monotonic_now() + kSecond;
  for (;;) {
    switch (send_packet(socket_.get(), packet, bytes)) {
      case Code::kOk: return {};
      case Code::kBusy:
        if (!wait_writable(socket_.get(), deadline - monotonic_now()))
          return error("A301", "the agent of this node has not read its socket for 1 s");
        break;
      default: return agent_lost();
    }
  }
}

bool AgentConnection::has_unread() const {
  int bytes = 0;
  return ioctl(socket_.get(), SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

Status AgentConnection::receive(Packet& packet) {
  Status why;
  switch (receive_packet(socket_.get(), packet, why)) {
    case ReceivePacket::kPacket: return {};
    case ReceivePacket::kNothing: return Status(Code::kBusy, "");
    case ReceivePacket::kEnd: return agent_lost();
    case ReceivePacket::kBad: return why;
  }
  return agent_lost();
}

}  // namespace gradbus
