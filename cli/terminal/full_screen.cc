#include "cli/terminal/full_screen.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

namespace gradbus {

FullScreen::FullScreen() {
  raw_ = tcgetattr(STDIN_FILENO, &before_) == 0;
  if (raw_) {
    termios keys = before_;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    keys.c_cc[VMIN] = 0;
    keys.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &keys);
  }
  std::fputs("\x1b[?1049h\x1b[?25l", stdout);
}

FullScreen::~FullScreen() {
  std::fputs("\x1b[?25h\x1b[?1049l", stdout);
  std::fflush(stdout);
  if (raw_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

FullScreen::Size FullScreen::size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 5 || size.ws_col < 20)
    return {};
  return {size.ws_row, size.ws_col};
}

// Each line is written over the old one and cleared to its end, so nothing flickers.
void FullScreen::show(const std::string& page) {
  std::string text = "\x1b[H";
  for (const char c : page) {
    if (c == '\n') text += "\x1b[K\r";
    text += c;
  }
  text += "\x1b[K\x1b[J";
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::optional<char> FullScreen::key() {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  if (poll(&input, 1, 0) <= 0) return std::nullopt;
  char bytes[3] = {};
  const ssize_t count = read(STDIN_FILENO, bytes, 1);
  ended_ = count <= 0;
  if (ended_) return std::nullopt;
  if (bytes[0] != '\x1b') return bytes[0];
  if (poll(&input, 1, 0) <= 0 || read(STDIN_FILENO, bytes + 1, 2) != 2) return '\x1b';
  return bytes[2] == 'A' ? 'k' : bytes[2] == 'B' ? 'j' : '\x1b';
}

}  // namespace gradbus
