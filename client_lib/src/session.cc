#include "client_lib/src/session.h"

#include <sys/random.h>

#include "client_lib/src/forks.h"
#include "client_lib/src/launch_warnings.h"
#include "common/errors.h"
#include "common/policy/codec_choice.h"

namespace gradbus {

// What `asked` says wins; else the job's policy, for what can be a gradient. A choice of codecs is
// left to those who measure steps, so other tensors are dense.
std::string SessionOptions::compression_for(const TensorSpec& spec, const char* asked) const {
  if (asked != nullptr) return std::string_view(asked) == "none" ? "" : asked;
  const bool sums = spec.kind == CollectiveKind::kAllReduce && spec.dtype == DType::kF32 &&
                    (spec.op == ReduceOp::kSum || spec.op == ReduceOp::kAverage);
  const uint32_t dims = spec.columns == 0 ? 0 : 2;
  const std::string_view found =
      sums ? compressions.find(spec.name, spec.count, dims) : std::string_view();
  return found == "none" || found.empty() || is_codec_choice(found) ? "" : std::string(found);
}

// ---- opening and closing

Session::Session(LaunchIdentity identity, SessionOptions options)
    : identity_(std::move(identity)), options_(std::move(options)) {}

Result<std::unique_ptr<Session>> Session::open(const SessionOptions& options) {
  Result<LaunchIdentity> identity = find_identity(options.identity, read_environment);
  if (!identity.ok() || identity.value().rank == 0) warn_of_unknown_variables();
  if (!identity.ok()) return identity.status();
  warn_if_alone(identity.value());
  SessionOptions chosen = options;
  if (chosen.socket_path.empty()) chosen.socket_path = default_socket_path(read_environment);
  std::unique_ptr<Session> session(new Session(identity.take(), std::move(chosen)));
  const LaunchIdentity& who = session->identity_;
  if (who.launcher == "single") {
    GRADBUS_RETURN_IF_ERROR(session->be_alone());
    return session;
  }
  Result<AgentConnection> connection = AgentConnection::open(session->options_.socket_path);
  if (connection.ok()) {
    auto joined = connection.value().join(who, session->options_.start_timeout);
    GRADBUS_RETURN_IF_ERROR(session->attach(connection.take(), std::move(joined)));
    return session;
  }
  if (who.world_size > 1)
    return connection.status().with_context("rank " + std::to_string(who.rank) + " of job \"" +
                                            who.job + "\"");
  GRADBUS_RETURN_IF_ERROR(session->be_alone());
  return session;
}

Result<std::unique_ptr<Session>> Session::open_set(LaunchIdentity identity) {
  std::unique_ptr<Session> session(new Session(std::move(identity), options_));
  if (session->identity_.world_size == 1) {
    GRADBUS_RETURN_IF_ERROR(session->be_alone());
    return session;
  }
  Result<AgentConnection> connection = AgentConnection::open(options_.socket_path);
  if (!connection.ok()) return connection.status();
  auto joined = connection.value().join(session->identity_, options_.start_timeout,
                                        [this] { return socket_.failure(); });
  GRADBUS_RETURN_IF_ERROR(session->attach(connection.take(), std::move(joined)));
  return session;
}

Status Session::be_alone() {
  joined_.world_size = joined_.local_size = joined_.agents = joined_.cores = 1;
  if (getrandom(joined_.secret, sizeof(joined_.secret), 0) != sizeof(joined_.secret))
    return error("X001", "the kernel did not provide random bytes");
  return {};
}

Status Session::attach(AgentConnection connection, Result<Attachment> attachment) {
  if (!attachment.ok()) return attachment.status();
  Attachment& attached = attachment.value();
  joined_ = attached.joined;
  make_private_in_children(attached.channel);
  GRADBUS_RETURN_IF_ERROR(channel_.open(std::move(attached.channel), std::move(attached.doorbell)));
  tensors_.arena().add(std::move(attached.arena));
  socket_.open(std::move(connection));
  registry_.add(this);
  return {};
}

Session::~Session() {
  registry_.remove(this);
  if (!socket_.is_open()) return;
  const std::lock_guard lock(socket_.lock());
  (void)socket_.send(make_packet<LeavePacket>());
}

// ---- the loop

void Session::progress() {
  progress_alone();
  registry_.progress_others(this);
}

void Session::progress_alone() {
  receive();
  if (socket_.is_open()) channel_.flush();
  operations_.advance();
}

void Session::receive() {
  socket_.receive([this](Packet& packet) { return take(packet); });
}

Status Session::take(Packet& packet) {
  switch (static_cast<AttachType>(packet.header.type)) {
    case AttachType::kSegment: return tensors_.arena().take(packet);
    case AttachType::kRegistered: return tensors_.take_registered(packet);
    case AttachType::kAnswer: return questions_.take(packet);
    case AttachType::kDeviceTrial: return device_offers_.take(packet);
    case AttachType::kNotice: {
      const Result<NoticePacket> notice = packet.as<NoticePacket>();
      if (notice.ok()) socket_.take_notice(notice.value());
      return notice.status();
    }
    case AttachType::kModeChange: {
      const Result<ModeChangePacket> change = packet.as<ModeChangePacket>();
      if (change.ok())
        mode_changes_.add({get_text(change.value().group), get_text(change.value().mode)});
      return change.status();
    }
    default: return bad_packet("type " + std::to_string(packet.header.type) + " from the agent");
  }
}

}  // namespace gradbus
