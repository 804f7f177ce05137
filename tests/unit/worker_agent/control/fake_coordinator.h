// A coordinator that keeps what it is sent, for tests of the conductor's parts.
#pragma once

#include <utility>
#include <vector>

#include "worker_agent/control/coordinator_connection.h"

namespace gradbus::test {

struct FakeCoordinator final : CoordinatorStream {
  void reconnect(const v1::AgentMessage& hello) override { hellos.push_back(hello.hello()); }
  bool send(const v1::AgentMessage& message) override {
    sent.push_back(message);
    return true;
  }
  size_t unsent() override { return waiting; }
  std::vector<v1::AgentMessage> take() { return std::exchange(sent, {}); }

  std::vector<v1::Hello> hellos;
  std::vector<v1::AgentMessage> sent;
  size_t waiting = 0;
};

inline v1::Hello hello_of(const std::string& node) {
  v1::Hello hello;
  hello.set_name(node);
  return hello;
}

inline v1::Welcome welcome(uint64_t incarnation = 1, uint64_t agent_id = 3) {
  v1::Welcome message;
  message.set_agent_id(agent_id);
  message.set_incarnation(incarnation);
  message.set_heartbeat_ms(500);
  return message;
}

}  // namespace gradbus::test
