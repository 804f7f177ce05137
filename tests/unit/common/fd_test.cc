// Descriptors that other processes have sent, and how they are closed.
#include "common/fd.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "common/clock.h"

namespace gradbus {
namespace {

size_t open_descriptors() {
  DIR* const folder = opendir("/proc/self/fd");
  size_t count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

std::array<Fd, 2> pair_of_sockets() {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

void pass(int socket, const std::vector<int>& fds) {
  std::byte byte{};
  iovec piece{&byte, 1};
  std::vector<std::byte> control(CMSG_SPACE(fds.size() * sizeof(int)));
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  std::memcpy(CMSG_DATA(part), fds.data(), fds.size() * sizeof(int));
  ASSERT_EQ(sendmsg(socket, &message, 0), 1);
}

// 200 messages with 20 descriptors each: 4,000 in all.
TEST(CloseElsewhere, OpensTheDescriptorsOfOneMessageAtATime) {
  constexpr int kMessages = 200, kEach = 20;
  const Fd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  auto [flooded, flooder] = pair_of_sockets();
  for (int message = 0; message < kMessages; ++message)
    pass(flooder.get(), std::vector<int>(kEach, file.get()));
  flooder.reset();
  const size_t before = open_descriptors();
  close_elsewhere(std::move(flooded));
  size_t most = before;
  const Nanos deadline = monotonic_now() + 20 * kSecond;
  for (size_t last = before; last >= before && monotonic_now() < deadline;) {
    last = open_descriptors();
    most = std::max(most, last);
  }
  EXPECT_LT(open_descriptors(), before) << "the socket itself is closed last";
  EXPECT_LE(most, before + 2 * kEach);
}

}  // namespace
}  // namespace gradbus
