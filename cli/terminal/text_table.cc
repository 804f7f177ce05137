#include "cli/terminal/text_table.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "common/check.h"

namespace gradbus {

void TextTable::add(std::vector<std::string> words) {
  GRADBUS_CHECK(words.size() == columns_.size());
  rows_.push_back(std::move(words));
}

// Columns on the left grow first.
std::vector<size_t> TextTable::widths(size_t columns) const {
  std::vector<size_t> widths;
  std::vector<size_t> longest;
  size_t used = 0;
  for (size_t i = 0; i < columns_.size(); ++i) {
    longest.push_back(columns_[i].title.size());
    for (const auto& row : rows_) longest[i] = std::max(longest[i], row[i].size());
    widths.push_back(
        std::max(columns_[i].title.size(), std::min(longest[i], columns_[i].width_max)));
    used += 2 + widths[i];
  }
  for (size_t i = 0; i < columns_.size() && used < columns; ++i) {
    if (!columns_[i].grows) continue;
    const size_t more = std::min(longest[i] - widths[i], columns - used);
    widths[i] += more;
    used += more;
  }
  return widths;
}

std::string TextTable::text(size_t columns) const {
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  const std::vector<size_t> fitted = widths(columns);
  std::string text = line(titles, fitted);
  for (const auto& row : rows_) text += line(row, fitted);
  return text;
}

std::string TextTable::line(const std::vector<std::string>& words,
                            const std::vector<size_t>& widths) const {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string word = cut(words[i], widths[i]);
    const std::string blanks(widths[i] - word.size(), ' ');
    text += columns_[i].right ? "  " + blanks + word : "  " + word + blanks;
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

std::string cut(const std::string& word, size_t width) {
  return word.size() <= width ? word : word.substr(0, width - 1) + "~";
}

std::string share_text(double share) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.0f %%", share * 100);
  return text;
}

std::string percent_text(double share) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %%", share * 100);
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace gradbus
