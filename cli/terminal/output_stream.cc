#include "cli/terminal/output_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/errors.h"
#include "common/system_error.h"

namespace gradbus {

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

TailStream::TailStream(Screen& screen, Label label, bool verbose,
                       std::shared_ptr<std::string> last_line)
    : screen_(screen),
      label_(std::move(label)),
      verbose_(verbose),
      last_line_(std::move(last_line)) {}

void TailStream::push(std::string_view bytes) {
  lines_.push(bytes, [this](std::string_view line) { emit(line); });
}

void TailStream::finish() {
  lines_.finish([this](std::string_view line) { emit(line); });
}

void TailStream::emit(std::string_view line) {
  if (!line.empty()) *last_line_ = line;
  if (verbose_) screen_.line(Target::kErr, label_, line);
}

}  // namespace gradbus
