#include "common/policy/spec_options.h"

#include <array>
#include <charconv>
#include <cstdint>

#include "common/check.h"
#include "common/edit_distance.h"

namespace gradbus {
namespace {

// Ranges of whole numbers end far below 2^63. (std::floor would make clients need libm.)
bool is_whole(double number) { return static_cast<double>(static_cast<int64_t>(number)) == number; }

// Whole numbers as such, others in the shortest form that reads back the same.
std::string number_text(double value) {
  if (value < 1e15 && is_whole(value)) return std::to_string(static_cast<int64_t>(value));
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end.ptr};
}

std::string range_text(const SpecOption& option) {
  return "a " + std::string(option.whole ? "whole number" : "number") + " from " +
         number_text(option.min) + " to " + number_text(option.max);
}

std::string choices_text(const SpecOption& option) {
  std::string text;
  for (const std::string_view choice : option.choices)
    text += (text.empty() ? "" : ", ") + std::string(choice);
  return text;
}

// The canonical text of a value of `option`, or what is wrong with it.
Result<std::string> check_value(const SpecOption& option, std::string_view value) {
  const auto wrong = [&](const std::string& wanted) {
    return Status(Code::kInvalid, "option " + std::string(option.name) + " is \"" +
                                      std::string(value) + "\", expected " + wanted);
  };
  if (!option.choices.empty()) {
    for (const std::string_view choice : option.choices)
      if (choice == value) return std::string(value);
    return wrong("one of " + choices_text(option));
  }
  double number = 0;
  const auto end = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool whole_text = end.ec == std::errc() && end.ptr == value.data() + value.size();
  const bool allowed = whole_text && number >= option.min && number <= option.max;
  if (!allowed || (option.whole && !is_whole(number))) return wrong(range_text(option));
  return number_text(number);
}

std::vector<std::string> names_of(std::span<const SpecOption* const> options) {
  std::vector<std::string> names;
  for (const SpecOption* option : options) names.emplace_back(option->name);
  return names;
}

// What may have been meant, or all there is where nothing is close.
std::string meant(std::string_view name, std::span<const SpecOption* const> options) {
  std::string close = did_you_mean(name, names_of(options));
  if (!close.empty()) return close;
  std::string all;
  for (const SpecOption* option : options)
    all += (all.empty() ? "; its options: " : ", ") + std::string(option->name);
  return all;
}

using Values = std::map<std::string, std::string, std::less<>>;

Status take_option(std::span<const SpecOption* const> options, std::string_view pair,
                   Values& values) {
  const size_t equals = pair.find('=');
  const std::string_view name = pair.substr(0, equals);
  for (const SpecOption* option : options) {
    if (option->name != name) continue;
    if (equals == std::string_view::npos)
      return {Code::kInvalid, "option " + std::string(name) + " has no value"};
    Result<std::string> value = check_value(*option, pair.substr(equals + 1));
    if (!value.ok()) return value.status();
    if (!values.emplace(name, value.take()).second)
      return {Code::kInvalid, "option " + std::string(name) + " is given twice"};
    return {};
  }
  return {Code::kInvalid, "no option \"" + std::string(name) + "\"" + meant(name, options)};
}

}  // namespace

const std::string& SpecOptions::text(std::string_view name) const {
  const auto found = values_.find(name);
  GRADBUS_CHECK(found != values_.end());
  return found->second;
}

double SpecOptions::number(std::string_view name) const {
  const std::string& value = text(name);
  double number = 0;
  std::from_chars(value.data(), value.data() + value.size(), number);
  return number;
}

SpecOptions SpecOptions::with(std::string_view name, double number) const {
  SpecOptions changed = *this;
  changed.values_.find(name)->second = number_text(number);
  return changed;
}

Result<ReadOptions> read_spec_options(std::string_view text,
                                      std::span<const SpecOption* const> known) {
  Values values;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    GRADBUS_RETURN_IF_ERROR(take_option(known, text.substr(0, comma), values));
    text = comma == std::string_view::npos ? "" : text.substr(comma + 1);
  }
  ReadOptions read;
  for (const SpecOption* option : known) {
    const auto [given, defaulted] =
        values.emplace(std::string(option->name), std::string(option->default_text));
    if (defaulted || (given->second == option->default_text && !option->kept)) continue;
    read.canonical += (read.canonical.empty() ? "" : ",") + given->first + "=" + given->second;
  }
  read.options = SpecOptions(std::move(values));
  return read;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known) {
  const std::string close = closest_name(name, known);
  return close.empty() ? "" : "; did you mean \"" + close + "\"?";
}

}  // namespace gradbus
