// The attached sessions of this process, so that a wait in one of them makes progress for all.
//
// An operation of a process set needs this rank while it waits for another set: its registration
// has to be taken, its input posted, its stream continued. Any thread may call anything here.
//
// Lock order: `lock_`, then the locks of a session and of its operations. Nobody takes `lock_`
// while it holds one of those.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace gradbus {

class Session;

class SessionRegistry {
 public:
  // A forked child gets a new registry: the sessions that it inherits are its parent's.
  static SessionRegistry& of_this_process();

  void add(Session* session);
  // Afterwards no other thread touches the session. Waits for a pass that is under way.
  void remove(Session* session);

  // Does nothing when another thread is doing it.
  void progress_others(const Session* own);

  // Over all sessions: registrations that wait for an answer, and streams under way. A waiting
  // thread sleeps briefly while there are any.
  std::atomic<uint32_t> unsettled{0};
  std::atomic<int> streams{0};

 private:
  explicit SessionRegistry(pid_t process, SessionRegistry* parents)
      : process_(process), parents_(parents) {}

  const pid_t process_;
  SessionRegistry* const parents_;  // never used: its lock may be held for ever
  std::mutex lock_;
  std::vector<Session*> sessions_;
  std::atomic<size_t> size_{0};
};

}  // namespace gradbus
