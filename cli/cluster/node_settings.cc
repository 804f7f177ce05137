#include "cli/cluster/node_settings.h"

#include <toml++/toml.h>
#include <unistd.h>

#include <array>
#include <string_view>

namespace gradbus {
namespace {

struct Setting {
  const char* file;
  const char* table;
  const char* key;
};

constexpr std::array<Setting, 3> kSettings = {Setting{"/agent.toml", "agent", "coordinator"},
                                              Setting{"/shard.toml", "agent", "coordinator"},
                                              Setting{"/server.toml", "server", "listen"}};

std::string text_in(const std::string& path, const Setting& setting) {
  try {
    return toml::parse_file(path)[setting.table][setting.key].value_or(std::string());
  } catch (const toml::parse_error&) {
    return "";
  }
}

// One that listens on all addresses is asked on this machine's own.
std::string reachable(const std::string& address) {
  constexpr std::string_view kAll = "0.0.0.0:";
  constexpr std::string_view kAll6 = "[::]:";
  if (address.starts_with(kAll)) return "127.0.0.1:" + address.substr(kAll.size());
  return address.starts_with(kAll6) ? "[::1]:" + address.substr(kAll6.size()) : address;
}

}  // namespace

std::string node_coordinator(const std::string& folder) {
  for (const Setting& setting : kSettings)
    if (const std::string found = text_in(folder + setting.file, setting); !found.empty())
      return reachable(found);
  return "";
}

std::string node_token(const std::string& coordinator, const std::string& folder) {
  const std::string path = folder + "/token";
  return coordinator == node_coordinator(folder) && access(path.c_str(), R_OK) == 0 ? path : "";
}

}  // namespace gradbus
