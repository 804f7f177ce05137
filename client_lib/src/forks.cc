#include "client_lib/src/forks.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "common/errors.h"

namespace gradbus {
namespace {

struct Inherited {
  std::mutex lock;  // held over fork(), so the list is whole in the child
  std::vector<std::weak_ptr<Segment>> segments;
};

// Never destroyed: a process may fork while it ends.
Inherited& inherited() {
  static auto* const all = new Inherited;
  return *all;
}

// Only system calls: another thread of the parent may have held any lock. Where the kernel refuses
// a private mapping (huge pages that are short), the pages are only read from here on.
void make_private(const Segment& segment) {
  const std::span<std::byte> memory = segment.memory();
  const void* const mapped = mmap(memory.data(), memory.size(), PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_FIXED, segment.fd(), 0);
  if (mapped == MAP_FAILED) (void)mprotect(memory.data(), memory.size(), PROT_READ);
}

void before_fork() { inherited().lock.lock(); }
void in_parent() { inherited().lock.unlock(); }
void in_child() {
  ++forks_above_this_process;
  for (const std::weak_ptr<Segment>& known : inherited().segments)
    if (const auto segment = known.lock(); segment != nullptr && segment->fd() >= 0)
      make_private(*segment);
  inherited().segments.clear();
  inherited().lock.unlock();
}

}  // namespace

void make_private_in_children(const std::shared_ptr<Segment>& segment) {
  static const int handlers = pthread_atfork(before_fork, in_parent, in_child);
  (void)handlers;  // fails when memory is short, and then the next allocation does, too
  const std::lock_guard lock(inherited().lock);
  std::erase_if(inherited().segments, [](const auto& known) { return known.expired(); });
  inherited().segments.push_back(segment);
}

Status forked_error() {
  return error("O907",
               "this process was forked from a rank after gradbus_init(), and the session belongs "
               "to the parent");
}

}  // namespace gradbus
