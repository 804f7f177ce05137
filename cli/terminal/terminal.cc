#include "cli/terminal/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace gradbus {
namespace {

std::string_view variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

}  // namespace

bool moves_cursor(int fd) {
  const std::string_view kind = variable("TERM");
  return isatty(fd) == 1 && !kind.empty() && kind != "dumb";
}

bool shows_colour(int fd) { return moves_cursor(fd) && variable("NO_COLOR").empty(); }

size_t terminal_columns(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace gradbus
