#include "common/bit_rate.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <string>

namespace gradbus {
namespace {

constexpr QuantityUnit kRates[] = {{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}};

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace

double parse_quantity(std::string_view text, std::span<const QuantityUnit> units) {
  double number = 0;
  const auto [stop, problem] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (problem != std::errc() || std::signbit(number)) return -1;
  const std::string unit = lower(text.substr(static_cast<size_t>(stop - text.data())));
  for (const QuantityUnit& row : units)
    if (unit == row.name) return std::round(number * row.factor);
  return -1;
}

double parse_bit_rate(std::string_view text) { return parse_quantity(text, kRates); }

}  // namespace gradbus
