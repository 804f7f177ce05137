#include "cli/process/signal_queue.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace gradbus {
namespace {

bool is_ignored(int number) {
  struct sigaction action {};
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

SignalQueue::SignalQueue() {
  sigset_t watched;
  sigemptyset(&watched);
  for (const int number : {SIGINT, SIGTERM, SIGHUP})
    if (!is_ignored(number)) sigaddset(&watched, number);
  sigprocmask(SIG_BLOCK, &watched, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  fd_.reset(signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
}

std::optional<int> SignalQueue::take() {
  signalfd_siginfo info{};
  if (read(fd_.get(), &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  const int number = static_cast<int>(info.ssi_signo);
  if (first_ == 0) first_ = number;
  return number;
}

}  // namespace gradbus
