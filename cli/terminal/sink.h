// One of the launcher's own outputs, written without ever blocking the poll loop. Main thread only.
//
// Bytes wait here until the reader takes them. The descriptor's flags are shared with the shell, so
// it is not made non-blocking: poll says when PIPE_BUF bytes fit, and no more are written at once.
#pragma once

#include <string>
#include <string_view>

namespace gradbus {

class Sink {
 public:
  explicit Sink(int fd);

  void write(std::string_view bytes);
  // Writes what the reader takes now.
  void flush();
  int fd() const { return fd_; }
  bool is_terminal() const { return is_terminal_; }
  size_t pending_bytes() const { return pending_.size() - written_; }
  // The reader went away; everything is dropped from then on.
  bool broken() const { return broken_; }

 private:
  bool write_some();

  int fd_;
  bool is_terminal_;
  bool broken_ = false;
  std::string pending_;
  size_t written_ = 0;  // bytes at the front of pending_ that are gone
};

}  // namespace gradbus
