// Questions of this rank to the coordinator, through the agent: one at a time.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "client_lib/src/agent_socket.h"

namespace gradbus {

class Session;

struct CoordinatorAnswer {
  uint32_t request = 0;
  Status refused;
  std::string text;
  std::atomic<bool> done{false};  // stored after the other members
};

class CoordinatorQuestions {
 public:
  explicit CoordinatorQuestions(AgentSocket& socket) : socket_(socket) {}

  // Sends the question. GB-O905 while another one waits for its answer.
  Result<std::shared_ptr<CoordinatorAnswer>> ask(std::string_view question);
  // Nobody waits for it any more: its late answer is not taken, and another question may be asked.
  void give_up(const std::shared_ptr<CoordinatorAnswer>& answer);
  // A part of the answer. With the socket's lock.
  Status take(const Packet& packet);

 private:
  AgentSocket& socket_;
  std::shared_ptr<CoordinatorAnswer> answer_;  // to the question that waits
};

// Blocks until the answer has come.
Result<std::string> ask_coordinator(Session& session, std::string_view question);

}  // namespace gradbus
