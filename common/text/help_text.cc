#include "common/text/help_text.h"

#include <algorithm>

namespace gradbus {
namespace {

constexpr size_t kIndentMax = kTextColumns / 2;  // the text needs some room, too

size_t first_word(std::string_view line, size_t from) {
  return std::min(line.find_first_not_of(' ', from), line.size());
}

size_t hanging_indent(std::string_view line) {
  const size_t first = first_word(line, 0);
  const size_t gap = line.find("  ", first);
  const size_t second = gap == std::string_view::npos ? line.size() : first_word(line, gap);
  return second <= kIndentMax ? second : std::min(first, kIndentMax);
}

enum class LongWords { kWhole, kCut };

// Where a line that has `room` columns ends: the last blank behind `from` within them, or the end
// of a word that is longer.
size_t line_end(std::string_view text, size_t room, size_t from, LongWords words) {
  if (text.size() <= room) return text.size();
  const size_t blank = text.rfind(' ', room);
  if (blank != std::string_view::npos && blank > from) return blank;
  return words == LongWords::kCut ? room : std::min(text.find(' ', from), text.size());
}

void append_wrapped(std::string_view line, size_t indent, LongWords words, std::string& wrapped) {
  size_t end = line_end(line, kTextColumns, std::max(first_word(line, 0), indent), words);
  while (end < line.size()) {
    wrapped.append(line.substr(0, end)).append("\n").append(indent, ' ');
    line.remove_prefix(first_word(line, end));
    end = line_end(line, kTextColumns - indent, 0, words);
  }
  wrapped.append(line);
}

}  // namespace

std::string wrap_lines(std::string_view text) {
  std::string wrapped;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    append_wrapped(line, hanging_indent(line), LongWords::kWhole, wrapped);
    if (end < text.size()) wrapped += '\n';
    begin = end + 1;
  }
  return wrapped;
}

std::string wrapped(std::string_view text, size_t indent) {
  std::string lines;
  append_wrapped(std::string(indent, ' ').append(text), indent, LongWords::kCut, lines);
  return lines + "\n";
}

std::string commented(std::string_view text) {
  std::string lines = wrapped(text, 2);
  lines.front() = '#';
  for (size_t end = lines.find('\n'); end + 1 < lines.size(); end = lines.find('\n', end + 1))
    lines[end + 1] = '#';
  return lines;
}

}  // namespace gradbus
