// A directory of this process alone (mode 0700), removed with everything in it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/status.h"

namespace gradbus {

class PrivateDir {
 public:
  // Under $XDG_RUNTIME_DIR, $TMPDIR or /tmp: the first that is there and short enough for the path
  // of a Unix socket (107 bytes). GB-H200 when none is writable.
  static Result<PrivateDir> create();
  PrivateDir(PrivateDir&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
  PrivateDir& operator=(PrivateDir&&) = delete;
  ~PrivateDir();

  const std::string& path() const { return path_; }

 private:
  explicit PrivateDir(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

// Where such directories are made, in this order: XDG_RUNTIME_DIR, TMPDIR, /tmp.
std::vector<std::string> private_dir_parents();
inline constexpr char kPrivateDirPrefix[] = "gradbus-run-";

}  // namespace gradbus
