#include "cli/cluster/cluster_token.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "cli/cluster/node_settings.h"
#include "cli/process/private_dir.h"
#include "common/errors.h"
#include "common/trust/token_file.h"

namespace gradbus {
namespace {

constexpr char kTokenName[] = "/token";
constexpr char kCoordinatorName[] = "/coordinator";

// Anybody may make a directory in /tmp: only one of this user's own counts.
bool is_own_private_directory(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
         (info.st_mode & 0077u) == 0;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

Result<std::string> create_embedded_token(const std::string& directory) {
  const std::string path = directory + kTokenName;
  GRADBUS_RETURN_IF_ERROR(create_token_file(path));
  return path;
}

Status announce_embedded(const std::string& directory, const std::string& coordinator) {
  const std::string path = directory + kCoordinatorName;
  std::ofstream file(path);
  file << coordinator << "\n" << std::flush;
  if (file) return {};
  return error("H200", path + " cannot be written: " + std::strerror(errno),
               "set TMPDIR to a writable directory with a short path");
}

std::string token_file_for(const std::string& given, const std::string& coordinator) {
  if (!given.empty()) return given;
  for (const std::string& parent : private_dir_parents()) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(parent, ignored)) {
      if (!entry.path().filename().string().starts_with(kPrivateDirPrefix)) continue;
      const std::string directory = entry.path().string();
      if (!is_own_private_directory(directory)) continue;
      if (first_line(directory + kCoordinatorName) == coordinator) return directory + kTokenName;
    }
  }
  const std::string named = token_file_path("");
  return named.empty() ? node_token(coordinator) : named;
}

}  // namespace gradbus
