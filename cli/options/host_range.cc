#include "cli/options/host_range.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "common/errors.h"

namespace gradbus {
namespace {

constexpr size_t kDigitsMax = 9;

Status bad_range(std::string_view entry, const std::string& why) {
  return error("H200", "host entry \"" + std::string(entry.substr(0, 80)) + "\" " + why,
               "write a range as node[01-04,07]:2, with whole numbers and the smaller one first");
}

bool all_digits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return std::isdigit(static_cast<unsigned char>(c));
  });
}

unsigned number_of(std::string_view digits) {
  unsigned value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

// "01-04" or "07" into `numbers`.
Status expand_part(std::string_view entry, std::string_view part, size_t names_max,
                   std::vector<std::string>& numbers) {
  const size_t dash = std::min(part.find('-'), part.size());
  const std::string_view low = part.substr(0, dash);
  const std::string_view high = dash == part.size() ? low : part.substr(dash + 1);
  const std::string shown(part.substr(0, 40));
  if (!all_digits(low) || !all_digits(high))
    return bad_range(entry,
                     "has the range \"" + shown + "\", which is not NUMBER or NUMBER-NUMBER");
  if (low.size() > kDigitsMax || high.size() > kDigitsMax)
    return bad_range(entry, "has a number of more than " + std::to_string(kDigitsMax) +
                                " digits in \"" + shown + "\"");
  const unsigned first = number_of(low), last = number_of(high);
  if (first > last)
    return bad_range(entry,
                     "has the range \"" + shown + "\", whose first number is the larger one");
  if (last - first >= names_max - std::min(names_max, numbers.size()))
    return bad_range(entry, "names more than " + std::to_string(names_max) + " hosts");
  for (unsigned value = first; value <= last; ++value) {
    const std::string digits = std::to_string(value);
    numbers.push_back(std::string(low.size() - std::min(low.size(), digits.size()), '0') + digits);
  }
  return {};
}

// The inside of one pair of brackets.
Result<std::vector<std::string>> expand_brackets(std::string_view entry, std::string_view inside,
                                                 size_t names_max) {
  std::vector<std::string> numbers;
  for (size_t begin = 0; begin <= inside.size();) {
    const size_t end = std::min(inside.find(',', begin), inside.size());
    GRADBUS_RETURN_IF_ERROR(
        expand_part(entry, inside.substr(begin, end - begin), names_max, numbers));
    begin = end + 1;
  }
  return numbers;
}

}  // namespace

bool begins_with_address(std::string_view text) {
  if (!text.starts_with("[")) return false;
  return text.substr(0, text.find(']')).find(':') != std::string_view::npos;
}

Result<std::vector<std::string>> expand_host_ranges(std::string_view entry, size_t names_max) {
  std::vector<std::string> names{""};
  for (size_t at = 0; at < entry.size();) {
    const size_t open = std::min(entry.find('[', at), entry.size());
    const std::string_view plain = entry.substr(at, open - at);
    if (plain.find(']') != std::string_view::npos) return bad_range(entry, "has a ] without its [");
    for (std::string& name : names) name += plain;
    if (open == entry.size()) break;
    const size_t close = entry.find(']', open);
    if (close == std::string_view::npos) return bad_range(entry, "has a [ without its ]");
    Result<std::vector<std::string>> numbers =
        expand_brackets(entry, entry.substr(open + 1, close - open - 1), names_max);
    if (!numbers.ok()) return numbers.status();
    if (numbers.value().size() > names_max / names.size())
      return bad_range(entry, "names more than " + std::to_string(names_max) + " hosts");
    std::vector<std::string> longer;
    for (const std::string& name : names)
      for (const std::string& number : numbers.value()) longer.push_back(name + number);
    names = std::move(longer);
    at = close + 1;
  }
  return names;
}

}  // namespace gradbus
