// Text for a terminal of 80 columns, as --help prints it. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gradbus {

inline constexpr size_t kTextColumns = 80;

// Each line that is longer than kTextColumns is wrapped at blanks. Words stay whole. The lines that
// follow begin where the line's second column begins ("  --name TEXT   what it is"), or below the
// first word.
std::string wrap_lines(std::string_view text);

// Lines of this text, each with `indent` blanks in front and '\n' behind. A word that is
// longer than a line is cut: a name that somebody chose.
std::string wrapped(std::string_view text, size_t indent);

// The same with "# " in front.
std::string commented(std::string_view text);

}  // namespace gradbus
