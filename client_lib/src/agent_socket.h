// The packets between this rank and its agent, and the end of the job, of which the agent tells. In
// a world of one there is no agent.
//
// One lock covers it and what the agent's packets change: the tensors, questions and trials of the
// session. Nothing here runs per step, except the look at failed().
#pragma once

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>

#include "client_lib/src/agent_connection.h"
#include "common/clock.h"
#include "common/status.h"

namespace gradbus {

// How long the agent has not read its socket. A frozen agent keeps its socket open; its silence is
// what it left unread from one look to the next. A long pause between two looks may be this
// process's own, so it counts as two looks at most.
class AgentSilence {
 public:
  static constexpr Nanos kLookEvery = kSecond;

  Nanos look(bool has_unread, Nanos now) {
    if (!has_unread) {
      looked_at_ = 0;
      silent_ = 0;
      return 0;
    }
    if (looked_at_ != 0) silent_ += std::min(now - looked_at_, 2 * kLookEvery);
    looked_at_ = now;
    return silent_;
  }

 private:
  Nanos looked_at_ = 0;  // 0: it had read everything
  Nanos silent_ = 0;
};

class AgentSocket {
 public:
  // `silence_max`: a waiting rank fails when its agent has not read its socket for this time.
  explicit AgentSocket(Nanos silence_max) : silence_max_(silence_max) {}

  // Before any other thread knows the session. Without it: a world of one.
  void open(AgentConnection connection) { connection_ = std::move(connection); }
  bool is_open() const { return connection_.has_value(); }

  // ---- any thread
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // Ok while the job runs.
  Status failure();
  // Until a packet has arrived. Returns false when the time is over.
  bool wait(Nanos timeout) const { return connection_->wait(timeout); }
  // Calls `handle(packet)` for each packet that has arrived, with the lock held. An error ends the
  // session.
  template <typename Handle>
  void receive(const Handle& handle) {
    const std::lock_guard lock(lock_);
    if (!is_open() || failed_.load()) return;
    for (;;) {
      Packet packet;
      Status status = connection_->receive(packet);
      if (status.code() == Code::kBusy) return;
      if (status.ok()) status = handle(packet);
      if (!status.ok()) return fail(status);
    }
  }
  // Reports to the agent that this rank has waited for `waited`. An agent that reads nothing ends
  // the session.
  void report_blocked(const std::string& name, uint64_t round, Nanos waited, bool background,
                      Nanos now);
  // The session ends: waits of other threads end with this error.
  void end(const Status& why);
  // What the agent has told last about the job; "": nothing.
  std::string notice();

  // ---- with the lock
  std::mutex& lock() { return lock_; }
  uint32_t next_request() { return next_request_++; }
  template <typename T>
  Status send(const T& packet) {
    return connection_->send(&packet, sizeof(packet));
  }
  void take_notice(const NoticePacket& notice);

 private:
  void fail(const Status& status);

  const Nanos silence_max_;
  std::mutex lock_;
  std::optional<AgentConnection> connection_;
  uint32_t next_request_ = 2;  // 1: the join
  AgentSilence silence_;
  std::string notice_;
  Status failure_;
  std::atomic<bool> failed_{false};
};

// "1.5 s"
std::string seconds_text(Nanos nanos);

}  // namespace gradbus
