#include "worker_agent/control/client_requests.h"

#include "common/errors.h"
#include "common/log.h"
#include "common/utf8.h"

namespace gradbus {
namespace {

using State = AttachedClient::State;

constexpr Nanos kBlockedReportsEvery = 200 * kMillisecond;

// Calls `handler` with the packet as its struct.
template <typename T, typename Handler>
Status with(const Packet& packet, const Handler& handler) {
  const Result<T> parsed = packet.as<T>();
  return parsed.ok() ? handler(parsed.value()) : parsed.status();
}

Status not_now(const Packet& packet) {
  return bad_packet("packet type " + std::to_string(packet.header.type) + " is not allowed now");
}

}  // namespace

Status ClientRequests::take(AttachedClient& client, const Packet& packet, Nanos now) {
  if (static_cast<AttachType>(packet.header.type) == AttachType::kLeave) {
    leave(client, now);
    return {};
  }
  if (client.state == State::kNew) return take_first(client, packet, now);
  if (client.state == State::kRunning) return take_running(client, packet, now);
  return not_now(packet);
}

Status ClientRequests::take_first(AttachedClient& client, const Packet& packet, Nanos now) {
  switch (static_cast<AttachType>(packet.header.type)) {
    case AttachType::kJoin:
      return with<JoinPacket>(packet,
                              [&](const auto& join) { return joins_.ask(client, join, now); });
    case AttachType::kAdmin:
      return with<AdminPacket>(
          packet, [&](const auto& wish) { return admin_calls_.take(client, wish, now); });
    default: return not_now(packet);
  }
}

Status ClientRequests::take_running(AttachedClient& client, const Packet& packet, Nanos now) {
  switch (static_cast<AttachType>(packet.header.type)) {
    case AttachType::kRegister:
      return with<RegisterPacket>(packet, [&](const auto& wanted) {
        tensors_.add(client, wanted, jobs_.find(client.job_id) != nullptr, now);
        return Status();
      });
    case AttachType::kUnregister:
      return with<UnregisterPacket>(packet,
                                    [&](const auto& done) { return unregister(client, done); });
    case AttachType::kBlocked:
      return with<BlockedPacket>(packet,
                                 [&](const auto& report) { return blocked(client, report, now); });
    case AttachType::kTryDevice:
      return with<TryDevicePacket>(packet,
                                   [&](const auto& trial) { return try_device(client, trial); });
    case AttachType::kDeviceTried:
      return with<DeviceTriedPacket>(packet,
                                     [&](const auto& tried) { return client.trials.end(tried); });
    case AttachType::kQuestion:
      return with<QuestionPacket>(packet,
                                  [&](const auto& part) { return questions_.take(client, part); });
    default: return not_now(packet);
  }
}

Status ClientRequests::unregister(AttachedClient& client, const UnregisterPacket& packet) {
  WorkerControlJob* const job = jobs_.running(client.job_id);
  if (job == nullptr) return {};
  GRADBUS_RETURN_IF_ERROR(job->release(client, packet));
  tensors_.remove(client, packet);
  return {};
}

Status ClientRequests::blocked(AttachedClient& client, const BlockedPacket& packet, Nanos now) {
  if (!is_utf8(get_text(packet.name)))
    return bad_packet("field name of a blocked report is not UTF-8");
  Nanos& next = client.next_blocked[packet.background != 0 ? 1 : 0];
  if (now < next) return {};  // the library sends one per second
  next = now + kBlockedReportsEvery;
  v1::AgentMessage message;
  v1::RankBlocked& blocked = *message.mutable_rank_blocked();
  blocked.set_job_id(client.job_id);
  blocked.set_rank(client.rank);
  blocked.set_tensor(get_text(packet.name));
  blocked.set_round(packet.round);
  blocked.set_waited_ms(packet.waited_ms);
  blocked.set_background(packet.background != 0);
  coordinator_.send(message);
  return {};
}

Status ClientRequests::try_device(AttachedClient& client, const TryDevicePacket& packet) {
  const Result<DeviceTrials::Begun> begun = client.trials.begin(packet, devices_);
  if (!begun.ok()) return begun.status();
  client.send(begun.value().answer, begun.value().descriptors);
  return {};
}

// ---- the end of a client

void ClientRequests::leave(AttachedClient& client, Nanos now) {
  if (client.state == State::kRunning && coordinator_.connected()) {
    tensors_.flush();
    // The job may end with this, so send its last counters and spans.
    jobs_.send_heartbeat(now);
    if (WorkerControlJob* const job = jobs_.find(client.job_id)) jobs_.traces().send(*job, now);
    report_left(client, true, "");
  }
  if (client.state == State::kJoining) lost(client, now);
  client.state = State::kLeft;
  client.forget_packets();
}

void ClientRequests::report_left(const AttachedClient& client, bool clean, const std::string& why) {
  v1::AgentMessage message;
  v1::RankLeft& left = *message.mutable_rank_left();
  left.set_job_id(client.job_id);
  left.set_rank(client.rank);
  left.set_job(client.job);
  left.set_clean(clean);
  left.set_detail(why);
  left.set_join(client.number());
  coordinator_.send(message);
}

// Its socket ended without a Leave: the process died.
void ClientRequests::lost(const AttachedClient& client, Nanos now) {
  report_left(client, false, "its process ended without leaving the job");
  if (client.state != State::kRunning) return;
  jobs_.fail(
      client.job_id,
      error("P101", client.who() + " of job \"" + client.job + "\" on node \"" +
                        coordinator_.node() + "\" died: its process ended without leaving the job"),
      now);
}

// Before its Hello, a client belongs to no job. Any user can connect as often as they like.
void ClientRequests::log_end(const AttachedClient& client, const Status& why, Nanos now) {
  if (client.job.empty() && !jobless_.may_write(now)) return;
  const std::string job = client.job.empty() ? "" : " of job \"" + client.job + "\"";
  spdlog::warn("client {}{} (uid {}) ended: {}{}", client.who(), job, client.uid(), why.message(),
               client.job.empty() ? jobless_.more() : "");
}

void ClientRequests::end_client(AttachedClient& client, const Status& why, Nanos now) {
  log_end(client, why, now);
  if (client.state == State::kRunning)
    return jobs_.report_failure(client.job_id, why.with_context(client.who()), now);
  if (client.state == State::kJoining)
    report_left(client, false, "its agent ended its connection: " + why.message());
  client.refuse_join(why);
}

void ClientRequests::end_given_up(const AttachedClient& client, Nanos now) {
  const Status& why = client.given_up();
  log_end(client, why, now);
  if (client.state == State::kRunning) jobs_.report_failure(client.job_id, why, now);
}

void ClientRequests::expire(AttachedClient& client) {
  if (client.state == State::kAsking) return admin_calls_.expire(client);
  if (client.state == State::kJoining) {
    report_left(client, false, "its join was not answered in time");
    return joins_.expire(client);
  }
  if (client.state != State::kLeft)
    client.refuse_join(bad_packet("no join within 2 s of connecting"));
}

void ClientRequests::client_gone(AttachedClient& client, Nanos now) {
  questions_.forget(client);
  admin_calls_.forget(client);
  const bool alive = client.state == State::kJoining || client.state == State::kRunning;
  WorkerControlJob* const job = client.job_id == 0 ? nullptr : jobs_.find(client.job_id);
  if (job != nullptr) job->client_gone(client);
  if (alive && (job == nullptr || !job->failed())) lost(client, now);
}

void ClientRequests::coordinator_gone(const Status& why) {
  tensors_.clear();  // they will be announced
  joins_.refuse_all(why);
  admin_calls_.end_all(why);
  questions_.end_all(why);
}

}  // namespace gradbus
