// Where the bytes of one child's pipe go: a page of an interface and its four answers. Main thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cli/terminal/line_assembler.h"
#include "cli/terminal/screen.h"
#include "common/fd.h"
#include "common/status.h"

namespace gradbus {

class OutputStream {
 public:
  virtual ~OutputStream() = default;
  virtual void push(std::string_view bytes) = 0;
  // The pipe has ended; nothing is pushed after this.
  virtual void finish() = 0;
};

// Bytes as they come.
class RawStream final : public OutputStream {
 public:
  RawStream(Screen& screen, Target target) : screen_(screen), target_(target) {}
  void push(std::string_view bytes) override { screen_.raw(target_, bytes); }
  void finish() override {}

 private:
  Screen& screen_;
  Target target_;
};

// Whole lines with a label. On stderr a line that is drawn over with '\r' counts as what a terminal
// shows of it at last; a `live` stream shows it while it grows. stdout's bytes are never changed.
class LineStream final : public OutputStream {
 public:
  LineStream(Screen& screen, Target target, Label label, bool live);
  void push(std::string_view bytes) override;
  void finish() override;

 private:
  void emit(std::string_view line);
  void show_progress();

  Screen& screen_;
  Target target_;
  Label label_;
  bool live_;
  bool drawing_ = false;  // the progress line is ours
  LineAssembler lines_;
};

// A file, byte for byte. A full disk is told once; the rank goes on.
class FileStream final : public OutputStream {
 public:
  static Result<std::unique_ptr<FileStream>> create(Screen& screen, const std::string& path);
  FileStream(Screen& screen, std::string path, Fd fd);
  void push(std::string_view bytes) override;
  void finish() override { fd_.reset(); }

 private:
  Screen& screen_;
  std::string path_;
  Fd fd_;
};

// The line of an agent's log that says which ranks the others have waited for, for 10 s or more; ""
// for any other line. The same on all agents.
std::string_view long_wait(std::string_view line);

// Keeps the last line: an embedded daemon's log, shown when it dies. With --verbose all of it is
// shown, otherwise long waits: once for all daemons that share `shown_wait`.
class TailStream final : public OutputStream {
 public:
  struct Lines {
    std::shared_ptr<std::string> last;
    std::shared_ptr<std::string> shown_wait;
  };
  TailStream(Screen& screen, Label label, bool verbose, Lines kept);
  void push(std::string_view bytes) override;
  void finish() override;

 private:
  void emit(std::string_view line);

  Screen& screen_;
  Label label_;
  bool verbose_;
  Lines kept_;
  LineAssembler lines_;
};

}  // namespace gradbus
