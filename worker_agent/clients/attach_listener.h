// The Unix socket to which clients attach. It owns the path: it takes over a stale one, refuses a
// live one (A303), and removes it at the end. Conductor thread only.
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <optional>
#include <string>

#include "common/fd.h"
#include "common/process_identity.h"
#include "common/status.h"

namespace gradbus {

struct AcceptedClient {
  AcceptedSocket socket;
  // Readable when the process has ended, even while a forked child still has the socket. Invalid
  // when the process is in another pid namespace on an old kernel.
  Fd process;
  ProcessIdentity identity;  // for a client without `process`
  uid_t uid = 0;
  uint64_t number = 0;  // among all clients of the agent, from 1: a pid may come again
  pid_t pid = 0;        // 0 when it is in another pid namespace: shown, never used as a key
};

class AttachListener {
 public:
  // Creates missing folders of `path`. `mode` is the permissions of the socket.
  static Result<AttachListener> open(const std::string& path, mode_t mode);
  // For a node that accepts no clients.
  static AttachListener none() { return AttachListener("", Fd()); }
  AttachListener(AttachListener&&) = default;
  AttachListener& operator=(AttachListener&&) = default;
  ~AttachListener();

  int fd() const { return socket_.get(); }
  const std::string& path() const { return path_; }
  // Returns the next client, or nothing when none waits.
  std::optional<AcceptedClient> accept();

 private:
  AttachListener(std::string path, Fd socket)
      : path_(std::move(path)),
        socket_(std::move(socket)),
        spare_(fcntl(socket_.get(), F_DUPFD_CLOEXEC, 0)) {}

  void turn_one_away();

  std::string path_;
  Fd socket_;
  Fd spare_;  // closed for a moment when no descriptors are left
};

}  // namespace gradbus
