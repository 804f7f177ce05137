// One gradbus_session and who may still touch what it has given out: the object that makes
// `shutdown` safe while other threads read outputs, and makes a forked child harmless. Calls that
// wait in the library need no Use: gradbus_shutdown() ends them, and they return GRADBUS_CLOSED.
//
// Any thread. Invariants: gradbus_shutdown runs once, after the last Use ended, and only in the
// process that called gradbus_init (a child shares the parent's socket: a goodbye from the child
// would end the parent's membership).
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "gradbus/gradbus.h"

namespace gradbus::python {

class Attachment {
 public:
  Attachment(gradbus_session* session, int64_t op_timeout_ms);
  ~Attachment();
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;

  // While a Use lives, the session does. For short calls only. False when the session is closed or
  // belongs to the parent.
  class Use {
   public:
    explicit Use(std::shared_ptr<Attachment> attachment);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    explicit operator bool() const { return entered_; }

   private:
    std::shared_ptr<Attachment> attachment_;
    bool entered_;
  };

  // Refuses new uses; the session ends now, or when the last use does. Waits at most `patience_ms`
  // for that, so that "left the job" is usually true on return.
  void close(int64_t patience_ms);

  bool is_open() const;
  bool is_forked() const;
  gradbus_session* session() const { return session_; }
  int64_t op_timeout_ms() const { return op_timeout_ms_; }

 private:
  bool enter();
  void leave();
  void end_session();

  gradbus_session* const session_;  // also after its end: then calls with it say so
  const int64_t op_timeout_ms_;
  const pid_t owner_;
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  int uses_ = 0;
  bool closing_ = false;
  bool ended_ = false;
};

}  // namespace gradbus::python
