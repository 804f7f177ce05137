#include "cli/process/private_dir.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "common/errors.h"

namespace gradbus {
namespace {

// A socket's path holds 107 bytes; "/agent-4095.sock" must fit behind the directory.
constexpr size_t kPathBytesMax = 107 - 16;

std::string try_parent(const std::string& parent) {
  std::string path = parent + "/" + kPrivateDirPrefix + "XXXXXX";
  if (path.size() > kPathBytesMax || mkdtemp(path.data()) == nullptr) return "";
  return path;
}

}  // namespace

std::vector<std::string> private_dir_parents() {
  std::vector<std::string> parents;
  for (const char* variable : {"XDG_RUNTIME_DIR", "TMPDIR"}) {
    const char* parent = getenv(variable);
    if (parent != nullptr && *parent == '/') parents.emplace_back(parent);
  }
  parents.emplace_back("/tmp");
  return parents;
}

Result<PrivateDir> PrivateDir::create() {
  for (const std::string& parent : private_dir_parents())
    if (std::string path = try_parent(parent); !path.empty()) return PrivateDir(std::move(path));
  return error("H200", std::string("no private directory can be made in /tmp: ") + strerror(errno),
               "set TMPDIR to a writable directory with a short path");
}

PrivateDir::~PrivateDir() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace gradbus
