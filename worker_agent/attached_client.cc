#include "worker_agent/attached_client.h"

#include <fcntl.h>

namespace gradbus {
namespace {

// A client that lets this many answers pile up does not read its socket at all.
constexpr size_t kPacketsMax = 1u << 17;

}  // namespace

AttachedClient::AttachedClient(AcceptedClient accepted) : accepted_(std::move(accepted)) {}

void AttachedClient::queue(const void* packet, size_t bytes, const std::vector<int>& fds) {
  const auto* first = static_cast<const std::byte*>(packet);
  Outgoing outgoing{{first, first + bytes}, {}};
  for (const int fd : fds) outgoing.fds.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  outgoing_.push_back(std::move(outgoing));
  (void)flush();
}

bool AttachedClient::flush() {
  while (!outgoing_.empty()) {
    const Outgoing& next = outgoing_.front();
    std::vector<int> fds;
    for (const Fd& own : next.fds) fds.push_back(own.get());
    const Code code = send_packet(fd(), next.bytes.data(), next.bytes.size(), fds);
    if (code == Code::kBusy) return outgoing_.size() < kPacketsMax;
    if (code != Code::kOk) return false;
    outgoing_.pop_front();
  }
  return true;
}

std::string AttachedClient::who() const {
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(accepted_.pid) + ")";
}

}  // namespace gradbus
