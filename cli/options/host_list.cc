#include "cli/options/host_list.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "cli/options/host_range.h"
#include "common/errors.h"
#include "proto/numbers.h"

namespace gradbus {
namespace {

constexpr std::string_view kBlanks = " \t\r";
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // of UTF-8

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// The name goes to ssh as an argument: no blank, no shell character, and no leading '-', which
// ssh would take for an option.
bool is_host_name(std::string_view name) {
  const auto allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("._-@:%").find(c) != std::string_view::npos;
  };
  return !name.empty() && name.size() <= 255 && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), allowed);
}

Status bad_entry(const std::string& entry, const std::string& why) {
  return error(
      "H200", "host entry \"" + entry.substr(0, 80) + "\" " + why,
      "write it as NAME or NAME:SLOTS, for example -H node1:4,node2:4 or -H node[01-04]:4");
}

using Hosts = Result<std::vector<Host>>;

Result<std::vector<std::string>> names_of(std::string_view name) {
  if (begins_with_address(name) && name.ends_with("]"))
    return std::vector<std::string>{std::string(name.substr(1, name.size() - 2))};
  return expand_host_ranges(name, kRanksMax);
}

Hosts make_hosts(const std::string& entry, std::string_view name, std::string_view slots) {
  Result<std::vector<std::string>> names = names_of(name);
  if (!names.ok()) return names.status();
  Result<int> count = parse_rank_count(slots, "slots");
  std::vector<Host> hosts;
  for (const std::string& one : names.value()) {
    if (!is_host_name(one)) return bad_entry(entry, "is not a host name");
    if (!count.ok()) return bad_entry(entry, "has slots that are not in 1..4096");
    hosts.push_back(Host{one, count.value(), is_this_machine(one)});
  }
  return hosts;
}

Hosts parse_entry(std::string_view entry) {
  const std::string shown(entry);
  const size_t colon = entry.rfind(':');
  const bool has_slots = colon != std::string_view::npos && !entry.ends_with("]");
  if (!has_slots) return make_hosts(shown, entry, "1");
  const std::string_view name = entry.substr(0, colon);
  if (name.find(':') != std::string_view::npos && !begins_with_address(name))
    return bad_entry(shown, "has two colons; an IPv6 address stands in brackets");
  return make_hosts(shown, name, entry.substr(colon + 1));
}

// Takes "slots = 2" from the front of `rest`: its key and its value. Blanks around '=' are allowed.
std::pair<std::string_view, std::string_view> take_setting(std::string_view& rest) {
  const size_t equals = rest.find('=');
  if (equals == std::string_view::npos) return {std::exchange(rest, {}), {}};
  const std::string_view key = trim(rest.substr(0, equals));
  const std::string_view after = trim(rest.substr(equals + 1));
  const size_t end = std::min(after.find_first_of(kBlanks), after.size());
  rest = trim(after.substr(end));
  return {key, after.substr(0, end)};
}

// "name slots=2 max-slots=4" as mpirun's hostfiles have it; only the slots matter here.
Hosts parse_hostfile_line(std::string_view line) {
  const size_t blank = line.find_first_of(kBlanks);
  if (blank == std::string_view::npos) return parse_entry(line);
  const std::string shown(line);
  std::optional<std::string_view> slots;
  for (std::string_view rest = trim(line.substr(blank)); !rest.empty();) {
    const auto [key, value] = take_setting(rest);
    if (key == "slots" && !slots)
      slots = value;
    else if (key != "max-slots" && key != "max_slots")
      return bad_entry(shown, "is not \"NAME slots=N\"");
  }
  if (!slots) return parse_entry(line.substr(0, blank));
  const std::string_view name = line.substr(0, blank);
  if (!begins_with_address(name) && name.find(':') != std::string_view::npos)
    return bad_entry(shown, "has slots twice");
  return make_hosts(shown, name, *slots);
}

// The next `separator` that is not in brackets, from `begin`.
size_t end_of_entry(std::string_view text, size_t begin, char separator) {
  int depth = 0;
  for (size_t at = begin; at < text.size(); ++at) {
    if (text[at] == separator && depth == 0) return at;
    if (text[at] == '[') ++depth;
    if (text[at] == ']' && depth > 0) --depth;
  }
  // A bracket that is not closed: its error names the first entry only.
  return depth == 0 ? text.size() : std::min(text.find(separator, begin), text.size());
}

template <typename End, typename Parse>
Hosts parse_each(std::string_view text, End end_from, Parse parse) {
  std::vector<Host> hosts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = end_from(begin);
    Hosts some = parse(trim(text.substr(begin, end - begin)));
    if (!some.ok()) return some.status();
    hosts.insert(hosts.end(), some.value().begin(), some.value().end());
    if (hosts.size() > static_cast<size_t>(kRanksMax))
      return error("H200", "more than 4096 hosts are given; at most 4096 are allowed");
    begin = end + 1;
  }
  return hosts;
}

}  // namespace

Result<std::vector<Host>> parse_host_list(std::string_view text) {
  return parse_each(
      text, [text](size_t begin) { return end_of_entry(text, begin, ','); }, parse_entry);
}

Result<std::vector<Host>> parse_hostfile(std::string_view text) {
  // No text in UTF-8 begins with one of these two bytes, and the marks of UTF-16 do.
  if (!text.empty() && static_cast<unsigned char>(text.front()) >= 0xfe)
    return error("H200", "the hostfile is UTF-16", "save it as UTF-8 or plain ASCII");
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const auto line_end = [text](size_t begin) {
    return std::min(text.find('\n', begin), text.size());
  };
  return parse_each(text, line_end, [](std::string_view line) -> Hosts {
    line = trim(line.substr(0, line.find('#')));
    return line.empty() ? Hosts(std::vector<Host>{}) : parse_hostfile_line(line);
  });
}

Result<std::vector<Host>> read_hostfile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  if (!file || !(text << file.rdbuf()))
    return error("H200", "the hostfile " + path + " cannot be read or is empty",
                 "check --hostfile");
  Result<std::vector<Host>> hosts = parse_hostfile(text.str());
  if (hosts.ok() && hosts.value().empty())
    return error("H200", "the hostfile " + path + " names no host",
                 "write one NAME slots=N a line");
  return hosts;
}

bool is_this_machine(std::string_view name) {
  if (name == "localhost" || name == "::1" || name.starts_with("127.")) return true;
  char buffer[256] = {};
  if (gethostname(buffer, sizeof(buffer) - 1) != 0) return false;
  const std::string_view here(buffer);
  return name == here || name == here.substr(0, here.find('.')) ||
         (name.size() > here.size() && name.starts_with(here) && name[here.size()] == '.');
}

Result<int> parse_rank_count(std::string_view text, const std::string& what,
                             std::string_view next) {
  int count = 0;
  const auto [stop, problem] = std::from_chars(text.data(), text.data() + text.size(), count);
  const bool whole = problem == std::errc() && stop == text.data() + text.size();
  if (!whole || count < 1 || count > static_cast<int>(kRanksMax))
    return error(
        "J401",
        what + " is \"" + std::string(text.substr(0, 40)) + "\", not a whole number in 1..4096",
        next);
  return count;
}

}  // namespace gradbus
