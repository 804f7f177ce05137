#include "worker_agent/control/admin_calls.h"

#include <unistd.h>

#include "common/errors.h"
#include "common/user_name.h"
#include "common/utf8.h"
#include "data_plane/coordinator_plans.h"
#include "proto/control.h"

namespace gradbus {
namespace {

constexpr Nanos kAnswerDeadline = 5 * kSecond;

struct Wish {
  AdminWish kind;
  std::string job, group, mode, reason;  // of kDrain and kUndoDrain, `job` is a node

  bool drains() const { return kind == AdminWish::kDrain || kind == AdminWish::kUndoDrain; }
};

Result<Wish> wish_from(const AdminPacket& packet) {
  Wish wish{static_cast<AdminWish>(packet.wish), get_text(packet.job), get_text(packet.group),
            get_text(packet.mode), get_text(packet.reason)};
  for (const std::string* text : {&wish.job, &wish.group, &wish.mode, &wish.reason})
    if (!is_utf8(*text)) return bad_packet("a text of an administrator's wish is not UTF-8");
  if (wish.kind != AdminWish::kStop && wish.kind != AdminWish::kMode && !wish.drains())
    return bad_packet("wish " + std::to_string(packet.wish) + " is unknown");
  return wish;
}

void fill(const Wish& wish, uid_t uid, const std::string& node, v1::AdminCall& call) {
  const auto say_who = [&](auto& request) {
    request.set_reason(wish.reason);
    request.mutable_caller()->set_uid(uid);
    request.mutable_caller()->set_user(local_user_name(uid));
    request.mutable_caller()->set_host(node);
  };
  if (wish.drains()) {
    say_who(*call.mutable_drain());
    call.mutable_drain()->set_node(wish.job);
    call.mutable_drain()->set_undo(wish.kind == AdminWish::kUndoDrain);
  } else if (wish.kind == AdminWish::kStop) {
    say_who(*call.mutable_stop());
    call.mutable_stop()->set_job(wish.job);
  } else {
    say_who(*call.mutable_mode());
    call.mutable_mode()->set_job(wish.job);
    call.mutable_mode()->set_group(wish.group);
    call.mutable_mode()->set_mode(wish.mode);
  }
}

void answer(AttachedClient& client, const Status& status) {
  auto packet = make_packet<AdminAnswerPacket>(1);
  packet.code = static_cast<uint32_t>(status.code());
  set_text(packet.text, status.message());
  client.send(packet);
  client.state = AttachedClient::State::kLeft;
}

}  // namespace

// A node belongs to nobody. Without the cluster token, only root and the agent's own user may drain
// it, and only the node of the agent that is asked.
Status AdminCalls::may_drain(const AttachedClient& client, const std::string& node) const {
  if (client.uid() == 0 || client.uid() == geteuid()) {
    if (node == coordinator_.node()) return {};
    return error("J408",
                 "this is node \"" + coordinator_.node() +
                     "\"; another node is drained with the "
                     "cluster token",
                 "add --token-file FILE, or run this on node \"" + node + "\"");
  }
  return error("J408",
               "refused user " + std::to_string(client.uid()) + ", who wants to drain node \"" +
                   node + "\": only root and the agent's user may",
               "add --token-file FILE, or run this as root");
}

Status AdminCalls::take(AttachedClient& client, const AdminPacket& packet, Nanos now) {
  const Result<Wish> wish = wish_from(packet);
  if (!wish.ok()) return wish.status();
  client.state = AttachedClient::State::kAsking;
  client.deadline = now + kAnswerDeadline;
  Status refused;
  if (!coordinator_.connected())
    refused = coordinator_.why_not_connected();
  else if (wish.value().drains())
    refused = may_drain(client, wish.value().job);
  if (!refused.ok()) {
    answer(client, refused);
    return {};
  }
  v1::AgentMessage message;
  v1::AdminCall& call = *message.mutable_admin_call();
  call.set_request(next_);
  fill(wish.value(), client.uid(), coordinator_.node(), call);
  calls_[next_++] = &client;
  coordinator_.send(message);
  return {};
}

void AdminCalls::answered(const v1::AdminAnswer& message) {
  const auto call = calls_.extract(message.request());
  if (call.empty() || call.mapped()->state != AttachedClient::State::kAsking) return;
  const v1::Error& refused = message.error();
  const bool done = refused.code() == 0 && refused.message().empty();
  answer(*call.mapped(), done ? Status() : status_from(refused));
}

void AdminCalls::expire(AttachedClient& client) {
  forget(client);
  answer(client,
         error("C501", "the coordinator " + coordinator_.address() + " did not answer in time"));
}

void AdminCalls::end_all(const Status& why) {
  for (const auto& [number, client] : std::exchange(calls_, {}))
    if (client->state == AttachedClient::State::kAsking) answer(*client, why);
}

void AdminCalls::forget(const AttachedClient& client) {
  std::erase_if(calls_, [&](const auto& call) { return call.second == &client; });
}

}  // namespace gradbus
