// A user of the cluster: the number, which decides, and the name, which is only displayed.
#pragma once

#include <cstdint>
#include <string>

#include "server/coordinator/members/text.h"

namespace gradbus {

inline constexpr size_t kUserBytesMax = 32;

struct User {
  uint32_t uid = 0;
  std::string name;  // "": not known
};

// "alice (uid 1000)", "uid 1000"
inline std::string user_text(const User& user) {
  const std::string number = "uid " + std::to_string(user.uid);
  return user.name.empty() ? number : clean_text(user.name, kUserBytesMax) + " (" + number + ")";
}

}  // namespace gradbus
