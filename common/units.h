// Numbers as a person reads them, in few columns. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gradbus {

// 1000 based, three digits: "0 B", "999 B", "1.23 kB", "45.6 MB".
std::string bytes_text(uint64_t bytes);
// "350 ms", "4.2 s", "3 min 5 s", "2 h 4 min", "5 d 1 h".
std::string milliseconds_text(uint64_t milliseconds);
// "12 us", "3.4 ms", then as milliseconds_text.
std::string nanoseconds_text(uint64_t nanoseconds);
// "1 rank", "2 ranks": `noun` is in the singular, and its plural has an s.
inline std::string counted(uint64_t number, std::string_view noun) {
  return std::to_string(number) + " " + std::string(noun) + (number == 1 ? "" : "s");
}

}  // namespace gradbus
