// The Unix socket that clients attach to. Owns the path: takes over a stale one, refuses a live one
// (A303), removes it at the end. Conductor thread only.
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <optional>
#include <string>

#include "common/fd.h"
#include "common/process_trace.h"
#include "common/status.h"

namespace gradbus {

struct AcceptedClient {
  Fd socket;
  // Readable when the process has ended, also while a child it forked still holds the socket. Not
  // there when the process lives in another pid namespace on an old kernel.
  Fd process;
  ProcessTrace trace;  // for a client without `process`
  uid_t uid = 0;
  pid_t pid = 0;  // 0 when it lives in another pid namespace: shown, never a key
};

class AttachListener {
 public:
  // Creates missing folders of `path`. `mode` are the socket's permissions.
  static Result<AttachListener> open(const std::string& path, mode_t mode);
  // Of a node that takes no clients.
  static AttachListener none() { return AttachListener("", Fd()); }
  AttachListener(AttachListener&&) = default;
  AttachListener& operator=(AttachListener&&) = default;
  ~AttachListener();

  int fd() const { return socket_.get(); }
  const std::string& path() const { return path_; }
  // The next client, or nothing when none waits.
  std::optional<AcceptedClient> accept();

 private:
  AttachListener(std::string path, Fd socket)
      : path_(std::move(path)),
        socket_(std::move(socket)),
        spare_(fcntl(socket_.get(), F_DUPFD_CLOEXEC, 0)) {}

  void turn_one_away();

  std::string path_;
  Fd socket_;
  Fd spare_;  // given up for a moment where there are no descriptors left
};

}  // namespace gradbus
