#include "cli/process/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "common/clock.h"
#include "common/errors.h"
#include "common/system_error.h"

namespace gradbus {
namespace {

std::vector<char*> c_strings(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

[[noreturn]] void give_up(int report_fd) {
  const int reason = errno;
  [[maybe_unused]] const ssize_t written = write(report_fd, &reason, sizeof(reason));
  _exit(127);
}

// dup2 onto itself keeps close-on-exec, so that case clears the flag by hand.
void place(int fd, int target, int report_fd) {
  const int done = fd == target ? fcntl(fd, F_SETFD, 0) : dup2(fd, target);
  if (done < 0) give_up(report_fd);
}

void restore_signals() {
  sigset_t none;
  sigemptyset(&none);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Runs between fork and exec: only async-signal-safe calls.
[[noreturn]] void become(const ChildSpec& spec, char** words, char** environment, pid_t parent,
                         int report_fd) {
  setpgid(0, 0);
  if (spec.death_signal != 0) prctl(PR_SET_PDEATHSIG, spec.death_signal);
  if (getppid() != parent) _exit(127);  // it died before prctl could notice
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) give_up(report_fd);
  const auto or_null = [null](int fd) { return fd < 0 ? null : fd; };
  place(or_null(spec.stdin_fd), STDIN_FILENO, report_fd);
  place(or_null(spec.stdout_fd), STDOUT_FILENO, report_fd);
  place(or_null(spec.stderr_fd), STDERR_FILENO, report_fd);
  // The report pipe must not sit on the number that the ready descriptor gets.
  const int report = fcntl(report_fd, F_DUPFD_CLOEXEC, kReadyFd + 1);
  if (report < 0) give_up(report_fd);
  if (spec.netns_fd >= 0 && setns(spec.netns_fd, CLONE_NEWNET) != 0) give_up(report);
  if (spec.ready_fd >= 0) place(spec.ready_fd, kReadyFd, report);
  restore_signals();
  execvpe(words[0], words, environment);
  give_up(report);
}

// 0 when exec succeeded: the pipe closes without a word.
int read_exec_error(const Fd& report) {
  int reason = 0;
  ssize_t got = 0;
  do {
    got = read(report.get(), &reason, sizeof(reason));
  } while (got < 0 && errno == EINTR);
  return got == sizeof(reason) ? reason : 0;
}

Status cannot_start(const ChildSpec& spec, int reason) {
  return system_error("H201", "\"" + spec.words.front() + "\" cannot be started", reason);
}

Status cannot_watch(const ChildSpec& spec, int reason) {
  return system_error("H201",
                      "\"" + spec.words.front() + "\" cannot be watched (pidfd_open, eventfd)",
                      reason, "allow the system call pidfd_open (seccomp profile)");
}

void wait_and_tell(pid_t pid, int end) {
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(end, &one, sizeof(one));
  close(end);
}

// For containers whose seccomp profile refuses pidfd_open: a thread waits for the child. It ends
// with the child, or when somebody else has buried it.
Fd watch_by_thread(pid_t pid) {
  Fd end(eventfd(0, EFD_CLOEXEC));
  Fd copy(end.valid() ? fcntl(end.get(), F_DUPFD_CLOEXEC, 0) : -1);
  if (!copy.valid()) return Fd();
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the main thread
  try {
    std::thread([pid, fd = copy.get()] { wait_and_tell(pid, fd); }).detach();
    copy.release();
  } catch (const std::system_error& problem) {
    errno = problem.code().value();
    end.reset();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return end;
}

}  // namespace

Result<Child> start_child(const ChildSpec& spec) {
  std::vector<char*> words = c_strings(spec.words);
  std::vector<char*> environment = c_strings(spec.environment);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return cannot_start(spec, errno);
  Fd report(ends[0]);
  Fd report_write(ends[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return cannot_start(spec, errno);
  if (pid == 0) become(spec, words.data(), environment.data(), parent, report_write.get());
  setpgid(pid, pid);  // on both sides, so the group exists before anybody signals it
  report_write.reset();
  Child child{pid, watch_child(pid)};
  const int no_watch = child.end.valid() ? 0 : errno;
  const int reason = read_exec_error(report);
  if (reason == 0 && no_watch == 0) return child;
  bury_by(child, monotonic_now());
  return reason != 0 ? cannot_start(spec, reason) : cannot_watch(spec, no_watch);
}

Fd watch_child(pid_t pid) {
  // By its number: glibc 2.36 declares pidfd_open without extern "C".
  Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  const bool refused = errno == EPERM || errno == EACCES || errno == ENOSYS;
  return pidfd.valid() || !refused ? std::move(pidfd) : watch_by_thread(pid);
}

std::string ExitState::text() const {
  if (signal == 0) return "exit status " + std::to_string(code);
  return "signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
}

bool has_ended(const Child& child, ExitState* state) {
  siginfo_t info{};
  const int flags = WEXITED | WNOHANG | WNOWAIT;
  if (waitid(P_PID, static_cast<id_t>(child.pid), &info, flags) != 0 || info.si_pid == 0)
    return false;
  *state = info.si_code == CLD_EXITED ? ExitState{info.si_status, 0} : ExitState{0, info.si_status};
  return true;
}

void bury(const Child& child) {
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED);
}

void bury_by(const Child& child, int64_t deadline) {
  pollfd end{child.end.get(), POLLIN, 0};
  const int64_t left_ms = std::max<int64_t>(0, (deadline - monotonic_now()) / kMillisecond);
  if (left_ms == 0 || poll(&end, 1, static_cast<int>(left_ms)) <= 0) kill(-child.pid, SIGKILL);
  bury(child);
}

Result<Pipe> make_pipe(PipeUse use) {
  const int flags = use == PipeUse::kForPolling ? O_NONBLOCK : 0;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0 || fcntl(ends[0], F_SETFL, flags) != 0)
    return system_error("H200", "no pipe for a rank's output", errno);
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

}  // namespace gradbus
