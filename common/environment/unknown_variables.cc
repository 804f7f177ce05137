#include "common/environment/unknown_variables.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "common/edit_distance.h"
#include "common/environment/variables.h"
#include "common/errors.h"

namespace gradbus {
namespace {

constexpr std::string_view kPrefix = "GRADBUS_";
constexpr const char* kReported = "GRADBUS_VARIABLES_REPORTED";
constexpr size_t kLinesMax = 8;  // one wrong script may set hundreds
constexpr size_t kNameBytesMax = 80;

std::string_view variable_name_of(std::string_view word) { return word.substr(0, word.find('=')); }

std::string_view value_of(std::string_view word) {
  const size_t at = word.find('=');
  return at == std::string_view::npos ? "" : word.substr(at + 1);
}

std::string variable_of(std::string section, std::string_view option) {
  section += option;
  for (char& c : section)
    c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return section;
}

std::vector<std::string> known_names() {
  std::vector<std::string> names;
  for (const Variable& variable : variables()) names.emplace_back(variable.name);
  for (const ToolVariable& variable : tool_variables()) names.emplace_back(variable.name);
  for (const char* option : agent_options()) names.push_back(variable_of("GRADBUS_AGENT_", option));
  for (const char* option : server_options())
    names.push_back(variable_of("GRADBUS_SERVER_", option));
  return names;
}

// Kubernetes gives each container variables of all services of its namespace. A service "gradbus-x"
// makes GRADBUS_X_SERVICE_HOST, GRADBUS_X_SERVICE_PORT, GRADBUS_X_SERVICE_PORT_GRPC, GRADBUS_X_PORT
// and GRADBUS_X_PORT_7400_TCP, the last also with _PROTO, _PORT and _ADDR.
bool is_of_service(std::string_view name, std::string_view value) {
  if (name.ends_with("SERVICE_HOST") || name.find("SERVICE_PORT") != std::string_view::npos)
    return true;
  if (value.find("://") != std::string_view::npos && name.find("PORT") != std::string_view::npos)
    return true;
  const size_t at = name.find("PORT_");
  if (at == std::string_view::npos || at + 5 >= name.size()) return false;
  return std::isdigit(static_cast<unsigned char>(name[at + 5])) != 0;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find(',', from), text.size());
    if (end > from) words.emplace_back(text.substr(from, end - from));
    from = end + 1;
  }
  return words;
}

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Without the prefix, which all names share.
std::string nearest(std::string_view name, const std::vector<std::string>& known) {
  std::vector<std::string> ends;
  for (const std::string& candidate : known) ends.push_back(candidate.substr(kPrefix.size()));
  const std::string found = closest_name(name.substr(kPrefix.size(), kNameBytesMax), ends);
  return found.empty() ? "" : std::string(kPrefix) + found;
}

std::string line_for(std::string_view name, const std::vector<std::string>& known) {
  std::string shown(name.substr(0, kNameBytesMax));
  for (char& c : shown)
    if (c < ' ' || c > '~') c = '?';
  const std::string meant = nearest(name, known);
  return error("F105", "nothing reads the variable " + shown + ", so it has no effect",
               meant.empty() ? "" : "did you mean " + meant + "? else unset " + shown)
      .message();
}

std::vector<std::string> unknown_names(const std::vector<std::string>& environment,
                                       const std::vector<std::string>& known) {
  std::vector<std::string> reported;
  for (const std::string& word : environment)
    if (variable_name_of(word) == kReported) reported = words_of(value_of(word));
  std::vector<std::string> names;
  for (const std::string& word : environment) {
    const std::string_view name = variable_name_of(word);
    if (!name.starts_with(kPrefix) || is_of_service(name, value_of(word))) continue;
    if (!contains(known, name) && !contains(reported, name)) names.emplace_back(name);
  }
  return names;
}

std::vector<std::string> lines_for(const std::vector<std::string>& names,
                                   const std::vector<std::string>& known) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < std::min(names.size(), kLinesMax); ++i)
    lines.push_back(line_for(names[i], known));
  if (names.size() > kLinesMax)
    lines.push_back(error("F105", "nothing reads " + std::to_string(names.size() - kLinesMax) +
                                      " more variables whose names begin with GRADBUS_")
                        .message());
  return lines;
}

}  // namespace

std::vector<std::string> environment_words() {
  std::vector<std::string> words;
  for (char** word = environ; word != nullptr && *word != nullptr; ++word)
    words.emplace_back(*word);
  return words;
}

std::vector<std::string> unknown_variables(const std::vector<std::string>& environment) {
  const std::vector<std::string> known = known_names();
  return lines_for(unknown_names(environment, known), known);
}

std::vector<std::string> take_unknown_variables() {
  const std::vector<std::string> known = known_names();
  const std::vector<std::string> names = unknown_names(environment_words(), known);
  if (names.empty()) return {};
  const char* before = std::getenv(kReported);
  std::string reported = before == nullptr ? "" : before;
  for (const std::string& name : names) reported += (reported.empty() ? "" : ",") + name;
  setenv(kReported, reported.c_str(), 1);
  return lines_for(names, known);
}

}  // namespace gradbus
