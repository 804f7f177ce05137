#include "cli/terminal/screen.h"

#include <sys/stat.h>

#include <iterator>

#include "cli/terminal/line_assembler.h"
#include "cli/terminal/terminal.h"

namespace gradbus {
namespace {

constexpr size_t kPendingBytesMax = size_t{1} << 20;
// Readable on dark and light ground: no black, white or yellow.
constexpr const char* kPalette[] = {"36", "32", "35", "34", "31", "96", "92", "95", "94", "91"};
constexpr std::string_view kErase = "\r\x1b[K";

bool same_file(int one, int other) {
  struct stat a {};
  struct stat b {};
  return fstat(one, &a) == 0 && fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

}  // namespace

Screen::Screen(int out_fd, int err_fd, ScreenStyle style)
    : out_(out_fd),
      err_(err_fd),
      style_(style),
      one_terminal_(out_.is_terminal() && err_.is_terminal() && same_file(out_fd, err_fd)) {}

void Screen::line(Target target, const Label& label, std::string_view text) {
  Sink& sink = sink_of(target);
  const bool above_progress = &sink == &err_ && !progress_.empty();
  if (above_progress) err_.write(kErase);
  sink.write(painted(sink, label).append(text).append("\n"));
  if (above_progress) draw_progress();
}

void Screen::raw(Target target, std::string_view bytes) { sink_of(target).write(bytes); }

void Screen::progress(const Label& label, std::string_view text) {
  progress_ = painted(err_, label).append(text);
  err_.write(kErase);
  draw_progress();
}

void Screen::note(std::string_view text) { line(Target::kErr, {}, text); }

bool Screen::is_full() const {
  return out_.pending_bytes() + err_.pending_bytes() > kPendingBytesMax;
}

void Screen::flush() {
  out_.flush();
  err_.flush();
}

void Screen::erase_progress() {
  if (!progress_.empty()) err_.write(kErase);
  progress_.clear();
}

Sink& Screen::sink_of(Target target) {
  return target == Target::kErr || one_terminal_ ? err_ : out_;
}

std::string Screen::painted(const Sink& sink, const Label& label) const {
  if (label.text.empty() || !style_.colour || !sink.moves_cursor()) return label.text;
  const char* colour = kPalette[static_cast<size_t>(label.colour) % std::size(kPalette)];
  return std::string("\x1b[") + colour + "m" + label.text + "\x1b[0m";
}

// Clipped: a line that wraps could not be erased.
void Screen::draw_progress() {
  err_.write(clip_to_columns(progress_, terminal_columns(err_.fd()) - 1));
  err_.write("\x1b[0m");
}

}  // namespace gradbus
