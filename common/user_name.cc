#include "common/user_name.h"

#include <pwd.h>

#include <array>
#include <cstdio>
#include <memory>

#include "common/utf8.h"

namespace gradbus {
namespace {

constexpr size_t kNameBytesMax = 32;

}  // namespace

std::string local_user_name(uid_t uid) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/etc/passwd", "re"), std::fclose);
  if (file == nullptr) return "";
  std::array<char, 4096> buffer;
  passwd entry{};
  passwd* found = nullptr;
  while (fgetpwent_r(file.get(), &entry, buffer.data(), buffer.size(), &found) == 0) {
    if (found->pw_uid != uid) continue;
    const std::string name = std::string(found->pw_name).substr(0, kNameBytesMax);
    return is_utf8(name) ? name : "";
  }
  return "";
}

}  // namespace gradbus
