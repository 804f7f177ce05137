#include "client_lib/src/agent_socket.h"

#include <cstdio>

#include "common/errors.h"

namespace gradbus {

std::string seconds_text(Nanos nanos) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", static_cast<double>(nanos) / kSecond);
  return text;
}

void AgentSocket::fail(const Status& status) {
  if (failed_.load()) return;
  failure_ = status;
  failed_.store(true);
}

void AgentSocket::end(const Status& why) {
  const std::lock_guard lock(lock_);
  fail(why);
}

Status AgentSocket::failure() {
  if (!failed()) return {};
  const std::lock_guard lock(lock_);
  return failure_;
}

void AgentSocket::take_notice(const NoticePacket& notice) {
  notice_ = get_text(notice.text);
  if (notice.code != 0) fail(Status(static_cast<Code>(notice.code), notice_));
}

std::string AgentSocket::notice() {
  const std::lock_guard lock(lock_);
  return notice_;
}

// The coordinator needs a report every second to prove that no wait can end.
void AgentSocket::report_blocked(const std::string& name, uint64_t round, Nanos waited,
                                 bool background, Nanos now) {
  const std::lock_guard lock(lock_);
  if (!is_open()) return;
  const Nanos silent = silence_.look(connection_->has_unread(), now);
  if (silent >= silence_max_ && silent > 0)
    return fail(error("A301", "the agent of this node has not read its socket for " +
                                  seconds_text(silent) + ": it is stopped or overloaded"));
  auto packet = make_packet<BlockedPacket>();
  set_text(packet.name, name);
  packet.round = round;
  packet.waited_ms = static_cast<uint64_t>(waited / kMillisecond);
  packet.background = background ? 1 : 0;
  (void)send(packet);
}

}  // namespace gradbus
