#include "worker_agent/clients/attached_client.h"

#include <fcntl.h>

#include <array>
#include <cstring>

#include "common/errors.h"

namespace gradbus {
namespace {

// The memory that a waiting packet needs besides its bytes.
constexpr size_t kOutgoingBytes = 128;

size_t bytes_without_zeros(const std::byte* packet, size_t bytes) {
  while (bytes > 0 && packet[bytes - 1] == std::byte{0}) --bytes;
  return bytes;
}

}  // namespace

AttachedClient::AttachedClient(AcceptedClient accepted) : accepted_(std::move(accepted)) {}

void AttachedClient::queue(const void* packet, size_t bytes, const std::vector<int>& fds) {
  if (!given_up_.ok()) return;
  const auto* first = static_cast<const std::byte*>(packet);
  Outgoing outgoing{{first, first + bytes_without_zeros(first, bytes)}, bytes, {}};
  for (const int fd : fds) {
    outgoing.fds.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!outgoing.fds.back().valid())
      return give_up(error("S220", "this agent has no file descriptor left for " + who()));
  }
  waiting_bytes_ += outgoing.bytes.size() + kOutgoingBytes;
  outgoing_.push_back(std::move(outgoing));
  (void)flush();
  if (waiting_bytes_ <= kWaitingBytesMax) return;
  give_up(error("A304",
                who() + " does not read its socket: " + std::to_string(kWaitingBytesMax >> 20) +
                    " MiB of answers wait",
                "look at what that process does; its job was ended, others go on"));
}

void AttachedClient::give_up(const Status& why) {
  given_up_ = why;
  forget_packets();
}

bool AttachedClient::flush() {
  while (!outgoing_.empty()) {
    const Outgoing& next = outgoing_.front();
    std::vector<int> fds;
    for (const Fd& own : next.fds) fds.push_back(own.get());
    std::array<std::byte, kAttachPacketBytesMax> packet;
    std::memcpy(packet.data(), next.bytes.data(), next.bytes.size());
    std::memset(packet.data() + next.bytes.size(), 0, next.packet_bytes - next.bytes.size());
    const Code code = send_packet(fd(), packet.data(), next.packet_bytes, fds);
    if (code == Code::kBusy) return true;
    if (code != Code::kOk) return false;
    waiting_bytes_ -= next.bytes.size() + kOutgoingBytes;
    outgoing_.pop_front();
  }
  return true;
}

// No packet of a client has descriptors.
ReceivePacket AttachedClient::receive(Packet& packet, Status& why) {
  const ReceivePacket received = receive_packet(fd(), packet, why);
  if (packet.fds.empty()) return received;
  for (Fd& passed : packet.fds) close_elsewhere(std::move(passed));
  packet.fds.clear();
  why = bad_packet("a client's packet has descriptors");
  return ReceivePacket::kBad;
}

void AttachedClient::refuse_join(const Status& why) {
  auto packet = make_packet<JoinedPacket>(1);
  packet.code = static_cast<uint32_t>(why.code());
  set_text(packet.text, why.message());
  send(packet);
  state = State::kLeft;
}

void AttachedClient::refuse_tensor(uint32_t request, const Status& why) {
  auto packet = make_packet<RegisteredPacket>(request);
  packet.code = static_cast<uint32_t>(why.code());
  set_text(packet.text, why.message());
  send(packet);
}

std::string AttachedClient::who() const {
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(accepted_.pid) + ")";
}

}  // namespace gradbus
