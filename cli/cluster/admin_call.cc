#include "cli/cluster/admin_call.h"

#include <cstdlib>

#include "cli/cluster/agent_socket.h"
#include "cli/cluster/cluster_token.h"
#include "cli/cluster/coordinator_client.h"
#include "client_lib/src/agent_connection.h"
#include "common/errors.h"

namespace gradbus {
namespace {

constexpr Nanos kAnswerDeadline = 10 * kSecond;

bool names_coordinator(const std::string& given) {
  const char* variable = std::getenv("GRADBUS_COORDINATOR");
  return !given.empty() || (variable != nullptr && *variable != '\0');
}

bool drains(const AdminRequest& request) {
  return request.wish == AdminWish::kDrain || request.wish == AdminWish::kUndoDrain;
}

Status ask_coordinator(const AdminRequest& request, const std::string& address,
                       const std::string& token_file) {
  CoordinatorClient client(address, token_file);
  if (request.wish == AdminWish::kStop) return client.stop_job(request.job, request.reason);
  if (drains(request)) {
    v1::DrainNodeRequest drain;
    drain.set_node(request.job);
    drain.set_undo(request.wish == AdminWish::kUndoDrain);
    drain.set_reason(request.reason);
    return client.drain_node(drain);
  }
  v1::ChangeModeRequest change;
  change.set_job(request.job);
  change.set_group(request.group);
  change.set_mode(request.mode);
  change.set_reason(request.reason);
  return client.change_mode(change);
}

Status check_lengths(const AdminRequest& request) {
  const auto fits = [](const std::string& text, size_t bytes_max) {
    return text.size() <= bytes_max && text.find('\0') == std::string::npos;
  };
  if (!fits(request.job, kJobNameBytesMax) && drains(request))
    return error("C505", "no node is called \"" + request.job.substr(0, 40) + "...\"");
  if (!fits(request.job, kJobNameBytesMax))
    return error("J406", "no job \"" + request.job.substr(0, 40) + "...\" is running");
  if (!fits(request.group, kTensorNameBytesMax) || !fits(request.mode, kModeBytesMax))
    return error("O911",
                 "a group or mode is longer than " + std::to_string(kModeBytesMax) + " bytes");
  return {};
}

Status ask_agent(const AdminRequest& request, const std::string& socket) {
  GRADBUS_RETURN_IF_ERROR(check_lengths(request));
  Result<AgentConnection> agent = AgentConnection::open(socket);
  if (!agent.ok()) return agent.status();
  auto packet = make_packet<AdminPacket>(1);
  packet.wish = static_cast<uint32_t>(request.wish);
  set_text(packet.job, request.job);
  set_text(packet.group, request.group);
  set_text(packet.mode, request.mode);
  set_text(packet.reason, request.reason);
  GRADBUS_RETURN_IF_ERROR(agent.value().send(&packet, sizeof(packet)));
  if (!agent.value().wait(kAnswerDeadline))
    return error("A301", "the agent at " + socket + " has not answered for 10 s");
  Packet answer;
  GRADBUS_RETURN_IF_ERROR(agent.value().receive(answer));
  const auto said = [](const auto& parsed) {
    if (!parsed.ok()) return parsed.status();
    return Status(static_cast<Code>(parsed.value().code), get_text(parsed.value().text));
  };
  // A packet that the agent does not understand is answered as a join is.
  if (answer.header.type == static_cast<uint16_t>(AttachType::kJoined))
    return said(answer.as<JoinedPacket>());
  return said(answer.as<AdminAnswerPacket>());
}

}  // namespace

Status administer(const AdminRequest& request, const std::string& coordinator,
                  const std::string& token_file) {
  const std::string address = coordinator_address(coordinator);
  const bool has_token = !token_file_for(token_file, address).empty();
  if (has_token || names_coordinator(coordinator))
    return ask_coordinator(request, address, token_file);
  const Result<std::string> socket = find_agent_socket();
  if (!socket.ok()) return socket.status();
  if (socket.value().empty()) return ask_coordinator(request, address, token_file);
  return ask_agent(request, socket.value());
}

}  // namespace gradbus
