// A table of words for a terminal: columns as wide as their content, each within its bound. Pure.
#pragma once

#include <string>
#include <vector>

namespace gradbus {

struct Column {
  std::string title;
  size_t width_max = 20;  // longer words are cut; the bounds of a table keep it within 80 columns
  bool right = false;     // numbers align right
  bool grows = false;     // beyond width_max, into what the other columns leave of the terminal
};

class TextTable {
 public:
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One word per column.
  void add(std::vector<std::string> words);
  // Title line and rows, each with two blanks in front and between and '\n' behind. `columns`: of
  // the terminal, for columns that grow; 0: none does.
  std::string text(size_t columns = 0) const;

 private:
  std::vector<size_t> widths(size_t columns) const;
  std::string line(const std::vector<std::string>& words, const std::vector<size_t>& widths) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// `word` cut to `width` bytes, "~" as the last one when something is missing.
std::string cut(const std::string& word, size_t width);

// 0.25 as "25 %", and as "25.0 %".
std::string share_text(double share);
std::string percent_text(double share);

std::vector<std::string> lines_of(const std::string& text);

}  // namespace gradbus
