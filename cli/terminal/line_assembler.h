// Turns chunks of bytes into whole lines. Pure.
//
// A line ends at '\n'. A line longer than kLineBytesMax comes in pieces, so a rank that writes no
// line end cannot make the launcher grow.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace gradbus {

inline constexpr size_t kLineBytesMax = size_t{1} << 20;

class LineAssembler {
 public:
  using Emit = std::function<void(std::string_view line)>;

  // Emits each line that `bytes` completes, without its '\n'.
  void push(std::string_view bytes, const Emit& emit);
  // Emits what is left when the input has ended in the middle of a line.
  void finish(const Emit& emit);
  // The line so far.
  std::string_view partial() const { return partial_; }
  // Forgets what a terminal would have overwritten: keeps the visible text of the line so far.
  void drop_overwritten();

 private:
  std::string partial_;
};

// What a terminal shows of a line in which '\r' goes back to the start: its last piece that has
// text.
std::string_view visible_text(std::string_view line);

// The longest head of `text` that takes at most `columns` places: UTF-8 sequences count one, escape
// sequences none.
std::string_view clip_to_columns(std::string_view text, size_t columns);

}  // namespace gradbus
