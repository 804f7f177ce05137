#include "common/system_error.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "common/errors.h"

namespace gradbus {

uint64_t open_files_max() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

Status check_daemon_files() {
  const uint64_t allowed = open_files_max();
  if (allowed >= kDaemonFilesMin) return {};
  return error("S220", "a daemon needs " + std::to_string(kDaemonFilesMin) +
                           " open files and more, and this process may open " +
                           std::to_string(allowed) + " files");
}

std::string_view bind_advice(int reason) {
  switch (reason) {
    case EADDRNOTAVAIL: return "name an address of this machine (ip -brief address)";
    case EACCES: return "choose a port above 1023 (0 takes any free one), or a folder of this user";
    case ENOENT: return "make that folder, or name another one";
    default: return "";
  }
}

Status system_error(std::string_view id, const std::string& what, int reason,
                    std::string_view next) {
  if (reason == EMFILE)
    return error("S220",
                 what + ": this process may open " + std::to_string(open_files_max()) + " files");
  if (reason == ENFILE)
    return error("S220", what + ": the whole machine has no open file left",
                 "end processes, or raise sysctl fs.file-max");
  return error(id, what + ": " + std::strerror(reason), next);
}

}  // namespace gradbus
