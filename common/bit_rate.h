// Quantities with a unit: bits per second as people and tc write them, and times. Pure.
#pragma once

#include <span>
#include <string_view>

namespace gradbus {

struct QuantityUnit {
  std::string_view name;  // in small letters
  double factor;
};

// A number without a sign, then one of `units`, in capitals or not: in whole ones of factor 1. -1
// when the text is anything else.
double parse_quantity(std::string_view text, std::span<const QuantityUnit> units);

// 1gbit, 2.5Gbit, 100mbit, 500kbit, 9600bit: in bit/s. -1 when the text is anything else; the
// caller knows what range makes sense.
double parse_bit_rate(std::string_view text);

}  // namespace gradbus
