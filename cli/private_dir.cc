#include "cli/private_dir.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <initializer_list>

#include "common/errors.h"

namespace gradbus {
namespace {

constexpr char kName[] = "/gradbus-run-XXXXXX";
// A socket's path holds 107 bytes; "/agent-4095.sock" must fit behind the directory.
constexpr size_t kPathBytesMax = 107 - 16;

std::string try_parent(const char* parent) {
  if (parent == nullptr || *parent != '/') return "";
  std::string path = std::string(parent) + kName;
  if (path.size() > kPathBytesMax || mkdtemp(path.data()) == nullptr) return "";
  return path;
}

}  // namespace

Result<PrivateDir> PrivateDir::create() {
  for (const char* parent :
       std::initializer_list<const char*>{getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR"), "/tmp"})
    if (std::string path = try_parent(parent); !path.empty()) return PrivateDir(std::move(path));
  return error("H200", std::string("no private directory can be made in /tmp: ") + strerror(errno),
               "set TMPDIR to a writable directory with a short path");
}

PrivateDir::~PrivateDir() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace gradbus
