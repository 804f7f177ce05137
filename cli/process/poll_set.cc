#include "cli/process/poll_set.h"

#include <algorithm>

namespace gradbus {

void PollSet::clear() {
  for (const pollfd& entry : entries_) index_of_[entry.fd] = -1;
  entries_.clear();
}

void PollSet::watch(int fd, short events) {
  if (fd < 0) return;
  if (index_of_.size() <= static_cast<size_t>(fd)) index_of_.resize(fd + 1, -1);
  index_of_[fd] = static_cast<int>(entries_.size());
  entries_.push_back({fd, events, 0});
}

void PollSet::wait_until(Nanos deadline) {
  const Nanos left = deadline - monotonic_now();
  // Rounded up: a wait that ends early would spin until the deadline.
  const Nanos left_ms = std::clamp<Nanos>((left + kMillisecond - 1) / kMillisecond, 0, 60'000);
  poll(entries_.data(), entries_.size(), static_cast<int>(left_ms));
}

short PollSet::events(int fd) const {
  if (fd < 0 || static_cast<size_t>(fd) >= index_of_.size() || index_of_[fd] < 0) return 0;
  return entries_[index_of_[fd]].revents;
}

}  // namespace gradbus
