#include "common/process_identity.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "common/fd.h"

namespace gradbus {
namespace {

constexpr int kFieldsBeforeStart = 19;  // in /proc/PID/stat, between the state and the start time

struct Stat {
  char state = 0;  // 0: there is no such file
  uint64_t started = 0;
};

// "PID (NAME) STATE ...": the name may hold blanks and brackets.
Stat read_stat(pid_t pid) {
  const Fd file(open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  char text[1024];
  const ssize_t got = file.valid() ? read(file.get(), text, sizeof(text) - 1) : -1;
  if (got <= 0) return {};
  text[got] = '\0';
  const char* at = std::strrchr(text, ')');
  if (at == nullptr || at[1] == '\0') return {};
  at += 2;
  Stat stat{*at, 0};
  for (int field = 0; field < kFieldsBeforeStart && at != nullptr; ++field) {
    at = std::strchr(at, ' ');
    if (at != nullptr) ++at;
  }
  if (at != nullptr) stat.started = std::strtoull(at, nullptr, 10);
  return stat;
}

}  // namespace

ProcessIdentity::ProcessIdentity(pid_t pid) : pid_(pid), started_(read_stat(pid).started) {}

bool ProcessIdentity::ended() const {
  if (pid_ <= 0) return false;
  if (kill(pid_, 0) != 0 && errno == ESRCH) return true;
  if (started_ == 0) return false;
  const Stat now = read_stat(pid_);
  return now.state == 'Z' || now.state == 'X' || (now.started != 0 && now.started != started_);
}

}  // namespace gradbus
