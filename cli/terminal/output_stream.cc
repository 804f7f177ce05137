#include "cli/terminal/output_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "common/errors.h"
#include "common/system_error.h"

namespace gradbus {
namespace {

constexpr double kLongWaitSeconds = 10;

}  // namespace

LineStream::LineStream(Screen& screen, Target target, Label label, bool live)
    : screen_(screen), target_(target), label_(std::move(label)), live_(live) {}

void LineStream::push(std::string_view bytes) {
  lines_.push(bytes, [this](std::string_view line) { emit(line); });
  if (target_ == Target::kOut) return;
  lines_.drop_overwritten();
  if (live_) show_progress();
}

void LineStream::finish() {
  lines_.finish([this](std::string_view line) { emit(line); });
}

void LineStream::emit(std::string_view line) {
  if (drawing_) screen_.erase_progress();
  drawing_ = false;
  screen_.line(target_, label_, target_ == Target::kOut ? line : visible_text(line));
}

// Only a line with a '\r' in it is a progress bar; others wait for their end.
void LineStream::show_progress() {
  if (lines_.partial().find('\r') == std::string_view::npos) return;
  const std::string_view text = visible_text(lines_.partial());
  if (text.empty()) return;
  screen_.progress(label_, text);
  drawing_ = true;
}

Result<std::unique_ptr<FileStream>> FileStream::create(Screen& screen, const std::string& path) {
  Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid())
    return system_error("H200", "the output file " + path + " cannot be written", errno,
                        "choose another --output-filename");
  return std::make_unique<FileStream>(screen, path, std::move(fd));
}

FileStream::FileStream(Screen& screen, std::string path, Fd fd)
    : screen_(screen), path_(std::move(path)), fd_(std::move(fd)) {}

void FileStream::push(std::string_view bytes) {
  while (fd_.valid() && !bytes.empty()) {
    const ssize_t done = write(fd_.get(), bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) {
      screen_.note(
          error("H200", "output to " + path_ + " is lost: " + strerror(errno), "free space there")
              .message());
      fd_.reset();
      return;
    }
    bytes.remove_prefix(static_cast<size_t>(done));
  }
}

std::string_view long_wait(std::string_view line) {
  constexpr std::string_view kMark = " waits: ", kFor = " for ";
  const size_t mark = line.find(kMark);
  const size_t job = line.find("job \"");
  if (mark == std::string_view::npos || job == std::string_view::npos) return {};
  for (size_t at = line.find(kFor, mark); at != std::string_view::npos;
       at = line.find(kFor, at + 1)) {
    double seconds = 0;
    const char* const begin = line.data() + at + kFor.size();
    const char* const end = line.data() + line.size();
    const auto [rest, failed] = std::from_chars(begin, end, seconds);
    const bool is_time = failed == std::errc() && std::string_view(rest, end).starts_with(" s");
    if (is_time && seconds >= kLongWaitSeconds) return line.substr(job);
  }
  return {};
}

TailStream::TailStream(Screen& screen, Label label, bool verbose, Lines kept)
    : screen_(screen), label_(std::move(label)), verbose_(verbose), kept_(std::move(kept)) {}

void TailStream::push(std::string_view bytes) {
  lines_.push(bytes, [this](std::string_view line) { emit(line); });
}

void TailStream::finish() {
  lines_.finish([this](std::string_view line) { emit(line); });
}

void TailStream::emit(std::string_view line) {
  if (!line.empty()) *kept_.last = line;
  if (verbose_) return screen_.line(Target::kErr, label_, line);
  const std::string_view wait = long_wait(line);
  if (wait.empty() || wait == *kept_.shown_wait) return;
  *kept_.shown_wait = wait;
  screen_.line(Target::kErr, Label{"gradbus: ", 0}, wait);
}

}  // namespace gradbus
