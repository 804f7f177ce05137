// The process at the other end of an attached client's socket, for tests of the conductor's parts.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "shared_memory/attach_socket.h"
#include "tests/unit/shared_memory/packets.h"
#include "worker_agent/clients/attached_client.h"

namespace gradbus::test {

class ClientProcess {
 public:
  ClientProcess() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    socket_.reset(ends[0]);
    agents_.reset(ends[1]);
  }

  // The agent's end, once.
  AcceptedClient accepted(uid_t uid = getuid(), Fd process = Fd()) {
    AcceptedClient client;
    client.socket = AcceptedSocket(std::move(agents_));
    client.process = std::move(process);
    client.uid = uid;
    client.pid = 4711;
    return client;
  }

  // The next packet from the agent; none, or of another type: empty.
  template <typename T>
  std::optional<T> read() {
    Packet packet;
    Status why;
    if (receive_packet(socket_.get(), packet, why) != ReceivePacket::kPacket) return {};
    fds_ = std::move(packet.fds);
    Result<T> parsed = packet.as<T>();
    if (!parsed.ok()) return {};
    return parsed.take();
  }
  // Whether nothing, not even an end, is there to read.
  bool quiet() {
    Packet packet;
    Status why;
    return receive_packet(socket_.get(), packet, why) == ReceivePacket::kNothing;
  }
  // Of the packet that was read last.
  const std::vector<Fd>& fds() const { return fds_; }
  int socket() const { return socket_.get(); }
  void close() { socket_.reset(); }

 private:
  Fd socket_;
  Fd agents_;
  std::vector<Fd> fds_;
};

}  // namespace gradbus::test
