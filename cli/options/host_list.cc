#include "cli/options/host_list.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <sstream>

#include "common/errors.h"
#include "proto/numbers.h"

namespace gradbus {
namespace {

constexpr std::string_view kBlanks = " \t\r";

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
  return error("H200", "host entry \"" + entry.substr(0, 80) + "\" " + why,
               "write it as NAME or NAME:SLOTS, for example -H node1:4,node2:4");
}

Result<Host> make_host(const std::string& entry, std::string_view name, std::string_view slots) {
  if (name.starts_with("[") && name.ends_with("]")) name = name.substr(1, name.size() - 2);
  if (!is_host_name(name)) return bad_entry(entry, "is not a host name");
  Result<int> count = parse_rank_count(slots, "slots");
  if (!count.ok()) return bad_entry(entry, "has slots that are not in 1..4096");
  return Host{std::string(name), count.value(), is_this_machine(name)};
}

Result<Host> parse_entry(std::string_view entry) {
  const std::string shown(entry);
  const size_t colon = entry.rfind(':');
  const bool has_slots = colon != std::string_view::npos && !entry.ends_with("]");
  if (!has_slots) return make_host(shown, entry, "1");
  const std::string_view name = entry.substr(0, colon);
  if (name.find(':') != std::string_view::npos && !name.starts_with("["))
    return bad_entry(shown, "has two colons; an IPv6 address stands in brackets");
  return make_host(shown, name, entry.substr(colon + 1));
}

// "name slots=2 max-slots=4" as mpirun's hostfiles have it; only the slots matter here.
Result<Host> parse_hostfile_line(std::string_view line) {
  const size_t blank = line.find_first_of(kBlanks);
  if (blank == std::string_view::npos) return parse_entry(line);
  const std::string_view rest = trim(line.substr(blank));
  if (!rest.starts_with("slots=")) return bad_entry(std::string(line), "is not \"NAME slots=N\"");
  const std::string_view number = rest.substr(6, rest.find_first_of(kBlanks) - 6);
  return make_host(std::string(line), line.substr(0, blank), number);
}

template <typename Parse>
Result<std::vector<Host>> parse_each(std::string_view text, char separator, Parse parse) {
  std::vector<Host> hosts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    Result<std::vector<Host>> some = parse(trim(text.substr(begin, end - begin)));
    if (!some.ok()) return some.status();
    hosts.insert(hosts.end(), some.value().begin(), some.value().end());
    begin = end + 1;
  }
  if (hosts.size() > static_cast<size_t>(kRanksMax))
    return error("H200", std::to_string(hosts.size()) + " hosts; at most 4096 are allowed");
  return hosts;
}

Result<std::vector<Host>> one(Result<Host> host) {
  if (!host.ok()) return host.status();
  return std::vector<Host>{host.take()};
}

}  // namespace

Result<std::vector<Host>> parse_host_list(std::string_view text) {
  return parse_each(text, ',', [](std::string_view entry) { return one(parse_entry(entry)); });
}

Result<std::vector<Host>> parse_hostfile(std::string_view text) {
  return parse_each(text, '\n', [](std::string_view line) -> Result<std::vector<Host>> {
    line = trim(line.substr(0, line.find('#')));
    if (line.empty()) return std::vector<Host>{};
    return one(parse_hostfile_line(line));
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

Result<int> parse_rank_count(std::string_view text, const std::string& what) {
  int count = 0;
  const auto [stop, problem] = std::from_chars(text.data(), text.data() + text.size(), count);
  const bool whole = problem == std::errc() && stop == text.data() + text.size();
  if (!whole || count < 1 || count > static_cast<int>(kRanksMax))
    return error(
        "J401",
        what + " is \"" + std::string(text.substr(0, 40)) + "\", not a whole number in 1..4096",
        "for example: gradbus run -np 4 -- COMMAND");
  return count;
}

}  // namespace gradbus
