#include "common/units.h"

#include <cstdio>
#include <iterator>

namespace gradbus {
namespace {

// Three digits that matter: 1.23, 12.3, 123.
std::string three_digits(double value) {
  char text[32];
  // The bounds are where rounding would add a digit.
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  std::snprintf(text, sizeof(text), "%.*f", decimals, value);
  return text;
}

std::string two_parts(uint64_t value, uint64_t per_major, const char* major, const char* minor) {
  return std::to_string(value / per_major) + " " + major + " " + std::to_string(value % per_major) +
         " " + minor;
}

}  // namespace

std::string bytes_text(uint64_t bytes) {
  if (bytes < 1000) return std::to_string(bytes) + " B";
  constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  return three_digits(value) + " " + kUnits[unit];
}

std::string milliseconds_text(uint64_t milliseconds) {
  if (milliseconds < 1000) return std::to_string(milliseconds) + " ms";
  const uint64_t seconds = milliseconds / 1000;
  if (seconds < 60) {
    const uint64_t tenths = milliseconds % 1000 / 100;
    return std::to_string(seconds) + "." + std::to_string(tenths) + " s";
  }
  if (seconds < 3600) return two_parts(seconds, 60, "min", "s");
  if (seconds < 86'400) return two_parts(seconds / 60, 60, "h", "min");
  return two_parts(seconds / 3600, 24, "d", "h");
}

std::string nanoseconds_text(uint64_t nanoseconds) {
  if (nanoseconds < 1'000'000) return std::to_string(nanoseconds / 1000) + " us";
  if (nanoseconds < 1'000'000'000)
    return three_digits(static_cast<double>(nanoseconds) / 1e6) + " ms";
  return milliseconds_text(nanoseconds / 1'000'000);
}

}  // namespace gradbus
