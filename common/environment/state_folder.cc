#include "common/environment/state_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "common/fd.h"
#include "common/system_error.h"

namespace gradbus {
namespace {

Status refusal(const std::string& folder, int reason) {
  return system_error("F116", "the state folder " + folder + " cannot be written to", reason);
}

}  // namespace

Status check_state_folder(const std::string& folder) {
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  if (problem) return refusal(folder, problem.value());
  const std::string probe = folder + "/.probe-" + std::to_string(getpid());
  const Fd file(open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return refusal(folder, errno);
  const int full = posix_fallocate(file.get(), 0, kStateBytesMax);
  unlink(probe.c_str());
  return full == 0 ? Status() : refusal(folder, full);
}

}  // namespace gradbus
