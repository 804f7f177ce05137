#include "cli/process/orphan_guard.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "common/check.h"
#include "common/clock.h"
#include "common/errors.h"
#include "common/system_error.h"

namespace gradbus {
namespace {

enum class Word : int32_t { kWatchGroup, kForgetGroup, kDirectory };

struct Record {
  Word word = Word::kWatchGroup;
  int32_t group = 0;
  char path[248] = {};
};
static_assert(sizeof(Record) <= PIPE_BUF, "a record is written whole or not at all");

void tell(const Fd& pipe, const Record& record) {
  // Fails only when the guard was killed; then the parent-death signals are what is left.
  [[maybe_unused]] const ssize_t written = write(pipe.get(), &record, sizeof(record));
}

// Ctrl-C and a group's SIGTERM are for the launcher; the guard goes when the pipe ends.
void leave_the_terminal(int pipe) {
  setsid();
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) signal(number, SIG_IGN);
  prctl(PR_SET_NAME, "gradbus-guard");
  const int kept = fcntl(pipe, F_DUPFD, kReadyFd + 1);
  const int null = open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
  dup2(kept, kReadyFd);
  close_range(kReadyFd + 1, ~0u, 0);
}

[[noreturn]] void guard_main(int pipe) {
  leave_the_terminal(pipe);
  std::set<pid_t> groups;
  std::string directory;
  Record record;
  while (read(kReadyFd, &record, sizeof(record)) == sizeof(record)) {
    if (record.word == Word::kWatchGroup) groups.insert(record.group);
    if (record.word == Word::kForgetGroup) groups.erase(record.group);
    if (record.word == Word::kDirectory) directory = record.path;
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  std::error_code ignored;
  if (!directory.empty()) std::filesystem::remove_all(directory, ignored);
  _exit(0);
}

}  // namespace

Result<OrphanGuard> OrphanGuard::start() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return system_error("H200", "no pipe", errno);
  Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  const pid_t pid = fork();
  if (pid < 0)
    return error("H200", std::string("no process can be started: ") + strerror(errno),
                 "raise the limit on processes (ulimit -u)");
  if (pid == 0) guard_main(read_end.get());
  return OrphanGuard(Child{pid, watch_child(pid)}, std::move(write_end));
}

OrphanGuard::OrphanGuard(Child child, Fd pipe) : child_(std::move(child)), pipe_(std::move(pipe)) {}

OrphanGuard::~OrphanGuard() {
  if (!pipe_.valid()) return;  // moved from
  pipe_.reset();
  bury_by(child_, monotonic_now() + kSecond);
}

void OrphanGuard::watch_group(pid_t group) { tell(pipe_, {Word::kWatchGroup, group, {}}); }

void OrphanGuard::forget_group(pid_t group) { tell(pipe_, {Word::kForgetGroup, group, {}}); }

void OrphanGuard::watch_directory(const std::string& path) {
  Record record{Word::kDirectory, 0, {}};
  GRADBUS_CHECK(path.size() < sizeof(record.path));
  std::memcpy(record.path, path.data(), path.size());
  tell(pipe_, record);
}

void OrphanGuard::forget_directory() { tell(pipe_, {Word::kDirectory, 0, {}}); }

}  // namespace gradbus
