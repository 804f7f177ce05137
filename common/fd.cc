#include "common/fd.h"

#include <sys/socket.h>

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace gradbus {
namespace {

constexpr size_t kThreadsMax = 16;    // one suffices, unless a file's server does not answer
constexpr int kMessagesMax = 10'000;  // more than any socket's queue has
constexpr int kDepthMax = 8;          // of sockets in the queues of others; Linux allows 5

int domain_of(int fd) {
  int domain = AF_UNSPEC;
  socklen_t bytes = sizeof(domain);
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 ? domain : AF_UNSPEC;
}

// Receives what is still on its way. False: nothing is left.
bool receive_fds(int socket, std::vector<Fd>& fds) {
  std::byte byte{};
  iovec piece{&byte, 1};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kFdsPerMessageMax * sizeof(int))> control;
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  if (recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) <= 0) return false;
  take_fds(message, fds);
  return true;
}

void close_patiently(Fd fd, int depth);

// Takes one message after the other, so few descriptors are open at a time.
void empty(int socket, int depth) {
  for (int i = 0; i < kMessagesMax; ++i) {
    std::vector<Fd> passed;
    if (!receive_fds(socket, passed)) return;
    for (Fd& fd : passed) close_patiently(std::move(fd), depth + 1);
  }
}

// Without waiting where that can be avoided: sockets do not linger, and those of this machine are
// empty. Only one thread at a time looks into sockets that came through others: each level has
// the descriptors of one message open.
void close_patiently(Fd fd, int depth) {
  static std::mutex nested;
  const int domain = domain_of(fd.get());
  if (domain == AF_UNSPEC) return;
  (void)shutdown(fd.get(), SHUT_RDWR);  // nothing more comes
  if (domain == AF_UNIX && depth < kDepthMax) {
    std::unique_lock<std::mutex> lock;
    if (depth == 1) lock = std::unique_lock(nested);
    empty(fd.get(), depth);
  }
  const linger none{};
  (void)setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

class Closer {
 public:
  void add(Fd fd) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(fd));
    if (waiting_.size() > idle_ && threads_ < kThreadsMax && start_thread()) ++threads_;
    wake_.notify_one();
  }

 private:
  // False: there are too many threads. One of ours will do it later.
  bool start_thread() {
    try {
      std::thread([this] { run(); }).detach();
      return true;
    } catch (const std::system_error&) {
      return false;
    }
  }

  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      ++idle_;
      wake_.wait(lock, [this] { return !waiting_.empty(); });
      --idle_;
      Fd fd = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      close_patiently(std::move(fd), 0);
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Fd> waiting_;
  size_t idle_ = 0;
  size_t threads_ = 0;
};

}  // namespace

void take_fds(msghdr& message, std::vector<Fd>& fds) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
}

void close_elsewhere(Fd fd) {
  if (!fd.valid()) return;
  static Closer* const closer = new Closer;  // its threads live as long as the process
  closer->add(std::move(fd));
}

void AcceptedSocket::close() {
  if (fd_.valid()) (void)shutdown(fd_.get(), SHUT_RDWR);
  close_elsewhere(std::move(fd_));
}

}  // namespace gradbus
