#include "cli/terminal/line_assembler.h"

#include <algorithm>

namespace gradbus {
namespace {

// Bytes of the escape sequence at the front of `text` (CSI: ESC [ ... letter), 0 when there is
// none.
size_t escape_bytes(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  size_t end = 2;
  while (end < text.size() && (text[end] < 0x40 || text[end] > 0x7e)) ++end;
  return std::min(end + 1, text.size());
}

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

}  // namespace

void LineAssembler::push(std::string_view bytes, const Emit& emit) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const size_t wanted = std::min(end, bytes.size());
    const size_t taken = std::min(wanted, kLineBytesMax - partial_.size());
    partial_.append(bytes.substr(0, taken));
    const bool complete = end != std::string_view::npos && taken == wanted;
    bytes.remove_prefix(taken + (complete ? 1 : 0));
    if (!complete && partial_.size() < kLineBytesMax) continue;
    emit(partial_);
    partial_.clear();
  }
}

void LineAssembler::finish(const Emit& emit) {
  if (!partial_.empty()) emit(partial_);
  partial_.clear();
}

void LineAssembler::drop_overwritten() {
  if (partial_.find('\r') == std::string::npos) return;
  // The '\r' in front tells that this line is drawn over and over; one behind, that the next piece
  // replaces this one.
  const bool ended = partial_.ends_with('\r');
  const std::string text(visible_text(partial_));
  partial_ = "\r" + text + (ended && !text.empty() ? "\r" : "");
}

std::string_view visible_text(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  const size_t start = line.rfind('\r');
  return start == std::string_view::npos ? line : line.substr(start + 1);
}

std::string_view clip_to_columns(std::string_view text, size_t columns) {
  size_t used = 0;
  size_t i = 0;
  while (i < text.size()) {
    if (const size_t escape = escape_bytes(text.substr(i)); escape > 0) {
      i += escape;
      continue;
    }
    if (!is_continuation(text[i]) && ++used > columns) break;
    ++i;
  }
  return text.substr(0, i);
}

}  // namespace gradbus
