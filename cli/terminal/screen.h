// The launcher's stdout and stderr together: whole lines with a rank's label, and one progress line
// at the bottom when stderr is a terminal that can move its cursor. Main thread only.
//
// Invariant: a progress line is erased before any other line is written to the terminal and drawn
// again behind it, so neither ever cuts the other.
#pragma once

#include <string>
#include <string_view>

#include "cli/terminal/sink.h"

namespace gradbus {

enum class Target { kOut, kErr };

// What stands in front of a line, e.g. "[2] ". Empty text: nothing does.
struct Label {
  std::string text;
  int colour = 0;  // index into the palette, wraps

  bool operator==(const Label&) const = default;
};

struct ScreenStyle {
  bool colour = true;  // on terminals; NO_COLOR and --no-color turn it off
};

class Screen {
 public:
  Screen(int out_fd, int err_fd, ScreenStyle style);

  void line(Target target, const Label& label, std::string_view text);
  // Bytes as they are; for a single rank without labels.
  void raw(Target target, std::string_view bytes);
  // Replaces the progress line. Only when shows_progress().
  void progress(const Label& label, std::string_view text);
  // A line of the launcher itself, on stderr.
  void note(std::string_view text);

  bool shows_progress() const { return err_.moves_cursor(); }
  // The ranks' pipes are not read while this many bytes wait: a slow reader slows the ranks, as it
  // would without a launcher, instead of filling our memory.
  bool is_full() const;
  bool is_empty() const { return out_.pending_bytes() == 0 && err_.pending_bytes() == 0; }
  void flush();
  // Takes the progress line away: its rank has written the finished line, or has ended.
  void erase_progress();
  Sink& out() { return out_; }
  Sink& err() { return err_; }

 private:
  Sink& sink_of(Target target);
  std::string painted(const Sink& sink, const Label& label) const;
  void draw_progress();

  Sink out_;
  Sink err_;
  ScreenStyle style_;
  bool one_terminal_;  // stdout and stderr are the same one: all goes through err_
  std::string progress_;
};

}  // namespace gradbus
