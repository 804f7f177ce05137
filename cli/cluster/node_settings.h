// What the daemons of this machine are configured with. The Debian packages keep it in
// /etc/gradbus, so an administrator's commands need neither an address nor a token there.
#pragma once

#include <string>

namespace gradbus {

inline constexpr char kNodeSettings[] = "/etc/gradbus";

// The coordinator in agent.toml, else in shard.toml, else the address that server.toml listens on;
// "" if there is none. A file with an error counts as none: its daemon says what is wrong.
std::string node_coordinator(const std::string& folder = kNodeSettings);

// The token file, if this user may read it and `coordinator` is that of this machine; else "".
std::string node_token(const std::string& coordinator, const std::string& folder = kNodeSettings);

}  // namespace gradbus
