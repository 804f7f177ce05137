#include "cli/terminal/text_table.h"

#include <algorithm>

#include "common/check.h"

namespace gradbus {
namespace {

constexpr size_t kColumns = 80;

}  // namespace

void TextTable::add(std::vector<std::string> words) {
  GRADBUS_CHECK(words.size() == columns_.size());
  for (size_t i = 0; i < words.size(); ++i) words[i] = cut(words[i], columns_[i].width_max);
  rows_.push_back(std::move(words));
}

std::string TextTable::text() const {
  std::vector<std::string> titles;
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    titles.push_back(columns_[i].title);
    widths.push_back(titles[i].size());
    for (const auto& row : rows_) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text = line(titles, widths);
  for (const auto& row : rows_) text += line(row, widths);
  return text;
}

std::string TextTable::line(const std::vector<std::string>& words,
                            const std::vector<size_t>& widths) const {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string blanks(widths[i] - words[i].size(), ' ');
    text += columns_[i].right ? "  " + blanks + words[i] : "  " + words[i] + blanks;
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

std::string wrapped(const std::string& text, size_t indent) {
  std::string lines;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin + kColumns - indent;
    if (end >= text.size()) {
      end = text.size();
    } else if (const size_t blank = text.rfind(' ', end);
               blank != std::string::npos && blank > begin) {
      end = blank;
    }
    lines += std::string(indent, ' ') + text.substr(begin, end - begin) + "\n";
    begin = end + (end < text.size() && text[end] == ' ' ? 1 : 0);
  }
  return lines;
}

std::string cut(const std::string& word, size_t width) {
  return word.size() <= width ? word : word.substr(0, width - 1) + "~";
}

}  // namespace gradbus
