// The whole terminal for a live page: the alternate screen, keys without Enter, no cursor. The
// destructor gives it back as it was. Main thread only.
#pragma once

#include <termios.h>

#include <cstddef>
#include <optional>
#include <string>

namespace gradbus {

class FullScreen {
 public:
  FullScreen();
  ~FullScreen();
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;

  struct Size {
    size_t rows = 24;
    size_t columns = 80;
  };
  static Size size();
  // Replaces the page; lines are separated by '\n'.
  void show(const std::string& page);
  // The next key that waits; arrows as 'k' (up) and 'j' (down). Never waits.
  std::optional<char> key();
  // The person who gave keys is gone.
  bool ended() const { return ended_; }

 private:
  termios before_{};
  bool raw_ = false;
  bool ended_ = false;
};

}  // namespace gradbus
