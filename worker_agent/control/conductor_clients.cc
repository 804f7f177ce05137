// The part of the conductor that handles attached processes.
#include <sys/epoll.h>

#include "common/errors.h"
#include "common/guarded.h"
#include "common/log.h"
#include "common/user_name.h"
#include "common/utf8.h"
#include "compression/spec.h"
#include "proto/control.h"
#include "worker_agent/control/conductor.h"

namespace gradbus {
namespace {

// Deadline from accept() to the first packet.
constexpr Nanos kHandshakeDeadline = 2 * kSecond;
constexpr int kPacketsPerTurn = 256;
constexpr Nanos kBlockedReportsEvery = 200 * kMillisecond;
// Tensors for which one client may wait at once.
constexpr size_t kWantedMax = 1u << 16;

constexpr Nanos kLookEvery = 250 * kMillisecond;

std::string user_text(uid_t uid) {
  const std::string name = local_user_name(uid);
  const std::string number = "uid " + std::to_string(uid);
  return name.empty() ? number : name + " (" + number + ")";
}

bool printable(const std::string& text) {
  for (const unsigned char c : text)
    if (c < 0x20 || c == 0x7f) return false;
  return !text.empty() && is_utf8(text);
}

}  // namespace

void Conductor::accept_clients() {
  while (auto accepted = listener_.accept()) {
    auto client = std::make_unique<AttachedClient>(std::move(*accepted));
    client->deadline = monotonic_now() + kHandshakeDeadline;
    if (clients_.size() >= options_.clients_max) {
      refuse_join(*client, error("A304", "this agent serves " + std::to_string(clients_.size()) +
                                             " clients, its limit"));
      continue;
    }
    if (!watch(client->fd(), EPOLLIN)) {
      refuse_join(*client, error("A304", "this agent cannot watch one more socket"));
      continue;
    }
    if (client->process_fd() >= 0 && watch(client->process_fd(), EPOLLIN)) {
      client_of_process_[client->process_fd()] = client->fd();
    }
    clients_[client->fd()] = std::move(client);
  }
}

// Packets that it sent before its death count, for example a Leave. Then the socket does not matter
// any more, even if a child of that process still has it open.
void Conductor::on_process_ended(int client_fd) {
  const auto client = clients_.find(client_fd);
  if (client != clients_.end()) on_client(*client->second);
  drop_client(client_fd);
}

void Conductor::on_client(AttachedClient& client) {
  for (int i = 0; i < kPacketsPerTurn; ++i) {
    Packet packet;
    Status why;
    const ReceivePacket received = client.receive(packet, why);
    if (received == ReceivePacket::kNothing) break;
    if (received == ReceivePacket::kEnd) return drop_client(client.fd());
    if (received == ReceivePacket::kPacket)
      why = guarded([&] { return on_packet(client, packet); });
    if (why.ok()) continue;
    spdlog::warn("client {} (uid {}) ended: {}", client.who(), client.uid(), why.message());
    if (client.state == AttachedClient::State::kRunning) {
      fail_job(client.job_id, why.with_context(client.who()), true);
    } else {
      if (client.state == AttachedClient::State::kJoining)
        report_lost(client, "its agent ended its connection: " + why.message());
      refuse_join(client, why);
    }
    return drop_client(client.fd());
  }
  if (!client.flush()) return drop_client(client.fd());
  rewatch(client);
}

Status Conductor::on_packet(AttachedClient& client, Packet& packet) {
  const auto run = [&](auto&& handler, auto parsed) {
    return parsed.ok() ? handler(parsed.value()) : parsed.status();
  };
  const bool running = client.state == AttachedClient::State::kRunning;
  switch (static_cast<AttachType>(packet.header.type)) {
    case AttachType::kJoin:
      if (client.state != AttachedClient::State::kNew) break;
      return run([&](const JoinPacket& join) { return on_join(client, join); },
                 packet.as<JoinPacket>());
    case AttachType::kAdmin:
      if (client.state != AttachedClient::State::kNew) break;
      return run([&](const AdminPacket& wish) { return on_admin(client, wish); },
                 packet.as<AdminPacket>());
    case AttachType::kRegister:
      if (!running) break;
      return run([&](const RegisterPacket& wanted) { return on_register(client, wanted); },
                 packet.as<RegisterPacket>());
    case AttachType::kUnregister:
      if (!running) break;
      return run([&](const UnregisterPacket& done) { return on_unregister(client, done); },
                 packet.as<UnregisterPacket>());
    case AttachType::kBlocked:
      if (!running) break;
      return run([&](const BlockedPacket& blocked) { return on_blocked(client, blocked); },
                 packet.as<BlockedPacket>());
    case AttachType::kTryDevice:
      if (!running) break;
      return run([&](const TryDevicePacket& trial) { return on_try_device(client, trial); },
                 packet.as<TryDevicePacket>());
    case AttachType::kDeviceTried:
      if (!running) break;
      return run([&](const DeviceTriedPacket& tried) { return on_device_tried(client, tried); },
                 packet.as<DeviceTriedPacket>());
    case AttachType::kQuestion:
      if (!running) break;
      return run([&](const QuestionPacket& part) { return on_question(client, part); },
                 packet.as<QuestionPacket>());
    case AttachType::kLeave: on_leave(client); return {};
    default: break;
  }
  return bad_packet("packet type " + std::to_string(packet.header.type) + " is not allowed now");
}

// ---- joining

Status Conductor::check_join(const AttachedClient& client, const JoinPacket& packet) const {
  const std::string name = get_text(packet.job);
  if (!printable(name) || name.size() > kJobNameBytesMax)
    return error(
        "J401",
        "the job's name must have 1.." + std::to_string(kJobNameBytesMax) + " printable bytes",
        "set GRADBUS_JOB");
  if (packet.world_size < 1 || packet.world_size > kRanksMax)
    return error("J401", "job \"" + name + "\": world size " + std::to_string(packet.world_size) +
                             " is not in 1.." + std::to_string(kRanksMax));
  if (packet.rank < 0 || packet.rank >= packet.world_size)
    return error("J401", "job \"" + name + "\": rank " + std::to_string(packet.rank) +
                             " is not in 0.." + std::to_string(packet.world_size - 1));
  for (const auto& [fd, other] : clients_)
    if (other.get() != &client && other->job == name && other->rank == packet.rank &&
        other->state == AttachedClient::State::kJoining)
      return error("J402", "job \"" + name + "\" already has rank " + std::to_string(packet.rank) +
                               ": " + other->who() + " on node \"" + options_.name + "\"");
  for (const auto& [fd, other] : clients_)
    if (other.get() != &client && other->job == name && other->uid() != client.uid() &&
        other->state != AttachedClient::State::kLeft)
      return error("J408", "job \"" + name + "\" belongs to " + user_text(other->uid()) +
                               "; refused " + user_text(client.uid()) +
                               ", who wants to join as rank " + std::to_string(packet.rank) +
                               " on node \"" + options_.name + "\"");
  if (!connected_) return no_coordinator();
  return {};
}

Status Conductor::on_join(AttachedClient& client, const JoinPacket& packet) {
  GRADBUS_RETURN_IF_ERROR(check_join(client, packet));
  client.state = AttachedClient::State::kJoining;
  client.job = get_text(packet.job);
  client.rank = static_cast<uint32_t>(packet.rank);
  client.world_size = static_cast<uint32_t>(packet.world_size);
  client.deadline = 0;
  v1::AgentMessage message;
  v1::JoinJob& join = *message.mutable_join_job();
  join.set_job(client.job);
  join.set_rank(client.rank);
  join.set_world_size(client.world_size);
  join.set_pid(static_cast<uint64_t>(packet.pid));
  join.set_start_timeout_ms(packet.start_timeout_ms);
  join.set_uid(client.uid());
  join.set_user(local_user_name(client.uid()));
  send(message);
  return {};
}

void Conductor::refuse_join(AttachedClient& client, const Status& why) {
  auto packet = make_packet<JoinedPacket>(1);
  packet.code = static_cast<uint32_t>(why.code());
  set_text(packet.text, why.message());
  client.send(packet);
  client.state = AttachedClient::State::kLeft;
}

// ---- registering

Status Conductor::on_register(AttachedClient& client, const RegisterPacket& packet) {
  TensorSpec spec{get_text(packet.name),
                  packet.count,
                  static_cast<DType>(packet.dtype),
                  static_cast<ReduceOp>(packet.op),
                  static_cast<CollectiveKind>(packet.collective),
                  packet.root,
                  packet.row_elements,
                  packet.prescale,
                  packet.postscale,
                  canonical_compression(get_text(packet.compression)),
                  packet.columns,
                  get_text(packet.mode),
                  get_text(packet.shape),
                  packet.priority,
                  packet.result_priority};
  if (spec.compression.empty()) spec.columns = 0;
  WorkerControlJob* running = job(client.job_id);
  Status refused = is_collective(packet.collective) ? check_spec(spec, client.world_size)
                                                    : bad_packet("collective number is unknown");
  if (refused.ok() && (running == nullptr || !coordinator_may_return()))
    refused = error("C501", "tensor \"" + spec.name + "\" cannot be registered: the coordinator " +
                                options_.coordinator + " is gone");
  if (refused.ok() && client.wanted.size() >= kWantedMax)
    refused = error("A304",
                    client.who() + " waits for " + std::to_string(kWantedMax) + " tensors already");
  if (!refused.ok()) {
    refuse_tensor(client, packet.header.request, refused);
    return {};
  }
  if (const auto earlier = client.wanted.find(spec.name); earlier != client.wanted.end())
    refuse_tensor(client, earlier->second.request,
                  error("O902", client.who() + " asked for tensor \"" + spec.name +
                                    "\" again with other arguments before the first answer"));
  std::optional<DeviceId> device;
  if (packet.wants_device != 0) {
    device = packet.device;
    devices_.look();
  }
  client.wanted[spec.name] = {packet.header.request, spec, device};
  if (connected_) ask_for(client, spec);  // otherwise after the coordinator has returned
  return {};
}

// Sent before the registrations of the same turn: a name that the rank registers again is another
// tensor.
Status Conductor::on_unregister(AttachedClient& client, const UnregisterPacket& packet) {
  WorkerControlJob* running = job(client.job_id);
  if (running == nullptr || running->failed()) return {};
  GRADBUS_RETURN_IF_ERROR(running->release(client, packet));
  if (!connected_) return {};  // announce_jobs() will report it
  v1::AgentMessage& message = unregistrations_[{client.job_id, client.rank}];
  v1::UnregisterTensors& batch = *message.mutable_unregister_tensors();
  batch.set_job_id(client.job_id);
  batch.set_rank(client.rank);
  packet.viewed != 0 ? batch.add_viewed(packet.tensor) : batch.add_tensors(packet.tensor);
  if (batch.tensors_size() + batch.viewed_size() >= kTensorsPerMessageMax) flush_registrations();
  return {};
}

void Conductor::flush_registrations() {
  for (const auto& [key, message] : unregistrations_) send(message);
  unregistrations_.clear();
  for (const auto& [key, message] : registrations_) send(message);
  registrations_.clear();
}

void Conductor::refuse_tensor(AttachedClient& client, uint32_t request, const Status& why) {
  auto packet = make_packet<RegisteredPacket>(request);
  packet.code = static_cast<uint32_t>(why.code());
  set_text(packet.text, why.message());
  client.send(packet);
}

Status Conductor::on_blocked(AttachedClient& client, const BlockedPacket& packet) {
  if (!is_utf8(get_text(packet.name)))
    return bad_packet("field name of a blocked report is not UTF-8");
  const Nanos now = monotonic_now();
  if (now < client.next_blocked) return {};  // the library sends one per second
  client.next_blocked = now + kBlockedReportsEvery;
  v1::AgentMessage message;
  v1::RankBlocked& blocked = *message.mutable_rank_blocked();
  blocked.set_job_id(client.job_id);
  blocked.set_rank(client.rank);
  blocked.set_tensor(get_text(packet.name));
  blocked.set_round(packet.round);
  blocked.set_waited_ms(packet.waited_ms);
  send(message);
  return {};
}

// ---- leaving

void Conductor::on_leave(AttachedClient& client) {
  if (client.state == AttachedClient::State::kRunning && connected_) {
    flush_registrations();
    send_heartbeat();  // the job may end with this, so send its last counters and spans
    if (WorkerControlJob* const running = job(client.job_id); running != nullptr)
      send_trace(*running);
    v1::AgentMessage message;
    v1::RankLeft& left = *message.mutable_rank_left();
    left.set_job_id(client.job_id);
    left.set_rank(client.rank);
    left.set_job(client.job);
    left.set_clean(true);
    send(message);
  }
  if (client.state == AttachedClient::State::kJoining) lost_client(client);
  client.state = AttachedClient::State::kLeft;
  client.forget_packets();
}

void Conductor::report_lost(const AttachedClient& client, const std::string& why) {
  v1::AgentMessage message;
  v1::RankLeft& left = *message.mutable_rank_left();
  left.set_job_id(client.job_id);
  left.set_rank(client.rank);
  left.set_job(client.job);
  left.set_detail(why);
  send(message);
}

// Its socket ended without a Leave: the process died.
void Conductor::lost_client(const AttachedClient& client) {
  const Status lost =
      error("P101", client.who() + " of job \"" + client.job + "\" on node \"" + options_.name +
                        "\" died: its process ended without leaving the job");
  report_lost(client, "its process ended without leaving the job");
  if (client.state == AttachedClient::State::kRunning) fail_job(client.job_id, lost, false);
}

void Conductor::drop_client(int fd) {
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;
  AttachedClient& client = *found->second;
  const bool alive = client.state == AttachedClient::State::kJoining ||
                     client.state == AttachedClient::State::kRunning;
  WorkerControlJob* running = client.job_id != 0 ? job(client.job_id) : nullptr;
  if (running != nullptr) running->client_gone(client);
  if (alive && (running == nullptr || !running->failed())) lost_client(client);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  if (client.process_fd() >= 0) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, client.process_fd(), nullptr);
    client_of_process_.erase(client.process_fd());
  }
  std::erase_if(admin_calls_, [fd](const auto& call) { return call.second == fd; });
  clients_.erase(found);
}

// Needed where pidfd_open is refused (containers with an old seccomp profile): no event arrives
// then.
void Conductor::look_for_ended_processes(Nanos now) {
  if (now < next_look_) return;
  next_look_ = now + kLookEvery;
  std::vector<int> ended;
  for (const auto& [fd, client] : clients_)
    if (client->process_fd() < 0 && client->process_ended()) ended.push_back(fd);
  for (const int fd : ended) on_process_ended(fd);
}

// Nobody reads these answers: the client's job ends, and the waiting packets are dropped.
void Conductor::drop_stuck_clients() {
  for (auto entry = clients_.begin(); entry != clients_.end();) {
    const auto current = entry++;
    AttachedClient& client = *current->second;
    if (!client.stuck()) continue;
    const Status why = error("A304",
                             client.who() + " does not read its socket: " +
                                 std::to_string(kWaitingBytesMax >> 20) + " MiB of answers wait",
                             "look at what that process does; its job was ended, others go on");
    spdlog::warn("client {} (uid {}) ended: {}", client.who(), client.uid(), why.message());
    if (client.state == AttachedClient::State::kRunning) fail_job(client.job_id, why, true);
    drop_client(current->first);
  }
}

void Conductor::expire_silent_clients(Nanos now) {
  for (auto entry = clients_.begin(); entry != clients_.end();) {
    const auto current = entry++;
    AttachedClient& client = *current->second;
    if (client.deadline == 0 || now < client.deadline) continue;
    if (client.state == AttachedClient::State::kAsking)
      answer_admin(client, error("C501", "the coordinator " + options_.coordinator +
                                             " did not answer in time"));
    if (client.state == AttachedClient::State::kLeft) {
      drop_client(current->first);
      continue;
    }
    refuse_join(client, bad_packet("no join within 2 s of connecting"));
    drop_client(current->first);
  }
}

}  // namespace gradbus
