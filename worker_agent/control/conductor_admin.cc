// Tools of this node's users. Each sends one request about a job, which is forwarded with the user
// that the kernel reports.
#include "common/errors.h"
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

Status Conductor::on_admin(AttachedClient& client, const AdminPacket& packet) {
  const std::string texts[] = {get_text(packet.job), get_text(packet.group), get_text(packet.mode),
                               get_text(packet.reason)};
  for (const std::string& text : texts)
    if (!is_utf8(text)) return bad_packet("a text of an administrator's wish is not UTF-8");
  const auto wish = static_cast<AdminWish>(packet.wish);
  if (wish != AdminWish::kStop && wish != AdminWish::kMode)
    return bad_packet("wish " + std::to_string(packet.wish) + " is unknown");
  client.state = AttachedClient::State::kAsking;
  client.deadline = monotonic_now() + kAnswerDeadline;
  if (!connected_) {
    answer_admin(client, no_coordinator());
    return {};
  }
  v1::AgentMessage message;
  v1::AdminCall& call = *message.mutable_admin_call();
  call.set_request(next_admin_call_);
  const auto fill = [&](auto& request) {
    request.set_job(texts[0]);
    request.set_reason(texts[3]);
    request.mutable_caller()->set_uid(client.uid());
    request.mutable_caller()->set_user(local_user_name(client.uid()));
    request.mutable_caller()->set_host(options_.name);
  };
  if (wish == AdminWish::kStop) {
    fill(*call.mutable_stop());
  } else {
    fill(*call.mutable_mode());
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
