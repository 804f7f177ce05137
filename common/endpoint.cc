#include "common/endpoint.h"

#include <algorithm>
#include <charconv>

#include "common/errors.h"

namespace gradbus {
namespace {

Status wrong(const std::string& text, const std::string& option, const std::string& why) {
  return error("F100", option + " \"" + text.substr(0, 128) + "\": " + why,
               "give it as HOST:PORT, for example 127.0.0.1:" + std::to_string(kCoordinatorPort));
}

bool is_port(const std::string& text) {
  int port = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), port);
  return failure == std::errc() && end == text.data() + text.size() && port >= 1 && port <= 65535;
}

}  // namespace

Result<std::string> coordinator_endpoint(const std::string& text, const std::string& option) {
  if (text.starts_with("unix:") || text.starts_with("unix-abstract:")) return text;
  const bool readable =
      std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > ' ' && c != 0x7f; });
  if (text.empty() || !readable) return wrong(text, option, "it is empty or holds blanks");
  if (text.find('/') != std::string::npos)
    return wrong(text, option, "it is a path or a URL, not an address");
  const std::string port = ":" + std::to_string(kCoordinatorPort);
  const auto colons = std::count(text.begin(), text.end(), ':');
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string::npos) return wrong(text, option, "the bracket is not closed");
    if (end + 1 == text.size()) return text + port;
    if (text[end + 1] != ':' || !is_port(text.substr(end + 2)))
      return wrong(text, option, "its port is not a number from 1 to 65535");
    return text;
  }
  if (colons == 0) return text + port;
  if (colons > 1) return "[" + text + "]" + port;  // an IPv6 address alone
  const size_t colon = text.find(':');
  if (colon == 0) return wrong(text, option, "there is no host before the port");
  if (!is_port(text.substr(colon + 1)))
    return wrong(text, option, "its port is not a number from 1 to 65535");
  return text;
}

}  // namespace gradbus
