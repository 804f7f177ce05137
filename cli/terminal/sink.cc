#include "cli/terminal/sink.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "cli/terminal/terminal.h"

namespace gradbus {
namespace {

bool is_writable(int fd) {
  pollfd entry{fd, POLLOUT, 0};
  return poll(&entry, 1, 0) == 1;
}

}  // namespace

Sink::Sink(int fd)
    : fd_(fd), is_terminal_(isatty(fd) == 1), moves_cursor_(gradbus::moves_cursor(fd)) {}

void Sink::write(std::string_view bytes) {
  if (!broken()) pending_.append(bytes);
}

void Sink::flush() {
  while (pending_bytes() > 0 && is_writable(fd_) && write_some()) continue;
  if (pending_bytes() > 0 && written_ < pending_.size() / 2) return;
  pending_.erase(0, written_);
  written_ = 0;
}

bool Sink::write_some() {
  const size_t some = std::min<size_t>(pending_bytes(), PIPE_BUF);
  const ssize_t done = ::write(fd_, pending_.data() + written_, some);
  if (done >= 0) {
    written_ += static_cast<size_t>(done);
    return true;
  }
  if (errno == EINTR) return true;
  if (errno == EAGAIN) return false;
  failure_ = errno;  // EPIPE, EIO of a closed terminal, ENOSPC: nobody will read this
  written_ = pending_.size();
  return false;
}

}  // namespace gradbus
