// The agent at the other end of a session's socket, for tests of the session's parts.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/src/agent_connection.h"
#include "tests/unit/shared_memory/packets.h"

namespace gradbus::test {

class FakeAgent {
 public:
  FakeAgent() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = testing::TempDir() + "agent-" + std::to_string(getpid());
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    unlink(path.c_str());
    const Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener.get(), 1), 0);
    opened_.emplace(AgentConnection::open(path));
    socket_.reset(accept(listener.get(), nullptr, nullptr));
    unlink(path.c_str());
  }

  // The session's end, once.
  AgentConnection connection() { return opened_->take(); }
  // The next packet of the session; none, or of another type: empty.
  template <typename T>
  std::optional<T> read() {
    Packet packet;
    Status why;
    if (receive_packet(socket_.get(), packet, why) != ReceivePacket::kPacket) return {};
    Result<T> parsed = packet.as<T>();
    if (!parsed.ok()) return {};
    return parsed.take();
  }
  template <typename T>
  void send(const T& packet, const std::vector<int>& fds = {}) {
    EXPECT_EQ(send_packet(socket_.get(), &packet, sizeof(packet), fds), Code::kOk);
  }
  void close() { socket_.reset(); }

 private:
  std::optional<Result<AgentConnection>> opened_;
  Fd socket_;
};

}  // namespace gradbus::test
