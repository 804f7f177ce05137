// Owns a file descriptor.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace gradbus {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

// The kernel's limit, SCM_MAX_FD. It closes what the receiver's buffer has no room for, in the
// receiver's thread.
inline constexpr size_t kFdsPerMessageMax = 253;

// Adds the descriptors that a received message has.
void take_fds(msghdr& message, std::vector<Fd>& fds);

// Closes it in a thread of its own. For a descriptor that another process has chosen or filled:
// close() of a socket may wait for its linger time, and of a file for the program that serves it.
// A socket of this machine also closes descriptors that nobody has received.
void close_elsewhere(Fd fd);

// Owns this end of a connection that another process has opened. The other end sees at once when
// it is closed.
class AcceptedSocket {
 public:
  AcceptedSocket() = default;
  explicit AcceptedSocket(Fd fd) : fd_(std::move(fd)) {}
  AcceptedSocket(AcceptedSocket&&) noexcept = default;
  AcceptedSocket& operator=(AcceptedSocket&& other) noexcept {
    if (this == &other) return *this;
    close();
    fd_ = std::move(other.fd_);
    return *this;
  }
  ~AcceptedSocket() { close(); }

  int get() const { return fd_.get(); }
  bool valid() const { return fd_.valid(); }

 private:
  void close();

  Fd fd_;
};

}  // namespace gradbus
