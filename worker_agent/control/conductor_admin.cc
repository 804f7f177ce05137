// Tools of this node's users. Each sends one request about a job, which is forwarded with the user
// that the kernel reports.
#include <unistd.h>

#include "common/errors.h"
#include "common/log.h"
#include "common/user_name.h"
#include "common/utf8.h"
#include "worker_agent/control/conductor.h"

namespace gradbus {
namespace {

constexpr Nanos kAnswerDeadline = 5 * kSecond;

}  // namespace

Status Conductor::no_coordinator() const {
  if (!not_proven_.ok()) return not_proven_;
  return error("C501", "agent \"" + options_.name + "\" has no connection to the coordinator " +
                           options_.coordinator);
}

// The coordinator refuses the jobs. The agent keeps this for a coordinator that is started again.
void Conductor::on_node_drained(const v1::NodeDrained& message) {
  drained_ = message;
  spdlog::info("{}",
               message.drained() ? "takes no new jobs: " + message.reason() : "takes jobs again");
}

// A node belongs to nobody. Without the cluster token, only root and the agent's own user may drain
// it, and only the node of the agent that is asked.
Status Conductor::may_drain(const AttachedClient& client, const std::string& node) const {
  if (client.uid() == 0 || client.uid() == geteuid()) {
    if (node == options_.name) return {};
    return error("J408",
                 "this is node \"" + options_.name +
                     "\"; another node is drained with the "
                     "cluster token",
                 "add --token-file FILE, or run this on node \"" + node + "\"");
  }
  return error("J408",
               "refused user " + std::to_string(client.uid()) + ", who wants to drain node \"" +
                   node + "\": only root and the agent's user may",
               "add --token-file FILE, or run this as root");
}

Status Conductor::on_admin(AttachedClient& client, const AdminPacket& packet) {
  const std::string texts[] = {get_text(packet.job), get_text(packet.group), get_text(packet.mode),
                               get_text(packet.reason)};
  for (const std::string& text : texts)
    if (!is_utf8(text)) return bad_packet("a text of an administrator's wish is not UTF-8");
  const auto wish = static_cast<AdminWish>(packet.wish);
  const bool drains = wish == AdminWish::kDrain || wish == AdminWish::kUndoDrain;
  if (wish != AdminWish::kStop && wish != AdminWish::kMode && !drains)
    return bad_packet("wish " + std::to_string(packet.wish) + " is unknown");
  client.state = AttachedClient::State::kAsking;
  client.deadline = monotonic_now() + kAnswerDeadline;
  if (!connected_) {
    answer_admin(client, no_coordinator());
    return {};
  }
  if (const Status allowed = drains ? may_drain(client, texts[0]) : Status(); !allowed.ok()) {
    answer_admin(client, allowed);
    return {};
  }
  v1::AgentMessage message;
  v1::AdminCall& call = *message.mutable_admin_call();
  call.set_request(next_admin_call_);
  const auto fill = [&](auto& request) {
    request.set_reason(texts[3]);
    request.mutable_caller()->set_uid(client.uid());
    request.mutable_caller()->set_user(local_user_name(client.uid()));
    request.mutable_caller()->set_host(options_.name);
  };
  if (drains) {
    fill(*call.mutable_drain());
    call.mutable_drain()->set_node(texts[0]);
    call.mutable_drain()->set_undo(wish == AdminWish::kUndoDrain);
  } else if (wish == AdminWish::kStop) {
    fill(*call.mutable_stop());
    call.mutable_stop()->set_job(texts[0]);
  } else {
    fill(*call.mutable_mode());
    call.mutable_mode()->set_job(texts[0]);
    call.mutable_mode()->set_group(texts[1]);
    call.mutable_mode()->set_mode(texts[2]);
  }
  admin_calls_[next_admin_call_++] = client.fd();
  send(message);
  return {};
}

void Conductor::on_admin_answer(const v1::AdminAnswer& answer) {
  const auto call = admin_calls_.find(answer.request());
  if (call == admin_calls_.end()) return;
  const auto client = clients_.find(call->second);
  admin_calls_.erase(call);
  if (client == clients_.end() || client->second->state != AttachedClient::State::kAsking) return;
  const v1::Error& refused = answer.error();
  const bool done = refused.code() == 0 && refused.message().empty();
  answer_admin(*client->second, done ? Status() : status_from(refused));
}

void Conductor::answer_admin(AttachedClient& client, const Status& status) {
  auto packet = make_packet<AdminAnswerPacket>(1);
  packet.code = static_cast<uint32_t>(status.code());
  set_text(packet.text, status.message());
  client.send(packet);
  client.state = AttachedClient::State::kLeft;
  rewatch(client);
}

void Conductor::end_admin_calls(const Status& why) {
  admin_calls_.clear();
  for (auto& [fd, client] : clients_)
    if (client->state == AttachedClient::State::kAsking) answer_admin(*client, why);
}

}  // namespace gradbus
