// Checks of numbers on the command line, for CLI11: their errors name the value and what is
// allowed.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <string>

namespace gradbus {

namespace number_range_detail {

template <typename Number>
CLI::Validator in_range(Number min, Number max, const std::string& kind) {
  const std::string range = CLI::detail::to_string(min) + ".." + CLI::detail::to_string(max);
  const auto check = [=](const std::string& text) {
    Number number{};
    const char* const end = text.data() + text.size();
    const auto [rest, problem] = std::from_chars(text.data(), end, number);
    const bool good = problem == std::errc() && rest == end && number >= min && number <= max;
    return good ? "" : "\"" + text.substr(0, 40) + "\" is not a " + kind + " in " + range;
  };
  return CLI::Validator(check, range, kind);
}

}  // namespace number_range_detail

inline CLI::Validator whole_range(int64_t min, int64_t max) {
  return number_range_detail::in_range<int64_t>(min, max, "whole number");
}

inline CLI::Validator number_range(double min, double max) {
  return number_range_detail::in_range<double>(min, max, "number");
}

}  // namespace gradbus
