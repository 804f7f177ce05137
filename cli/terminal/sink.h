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
  bool moves_cursor() const { return moves_cursor_; }
  size_t pending_bytes() const { return pending_.size() - written_; }
  // The reader went away, or the disk is full; everything is dropped from then on.
  bool broken() const { return failure_ != 0; }
  // The errno of the write that failed; 0 if none has.
  int failure() const { return failure_; }

 private:
  bool write_some();

  int fd_;
  bool is_terminal_;
  bool moves_cursor_;
  int failure_ = 0;
  std::string pending_;
  size_t written_ = 0;  // bytes at the front of pending_ that are gone
};

}  // namespace gradbus
