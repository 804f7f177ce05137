#include "client_lib/src/session_registry.h"

#include <unistd.h>

#include "client_lib/src/session.h"

namespace gradbus {

SessionRegistry& SessionRegistry::of_this_process() {
  static std::atomic<SessionRegistry*> current{nullptr};
  const pid_t process = getpid();
  SessionRegistry* known = current.load();
  while (known == nullptr || known->process_ != process) {
    auto* const made = new SessionRegistry(process, known);
    if (current.compare_exchange_strong(known, made)) return *made;
    delete made;
  }
  return *known;
}

void SessionRegistry::add(Session* session) {
  const std::lock_guard lock(lock_);
  sessions_.push_back(session);
  size_ = sessions_.size();
}

void SessionRegistry::remove(Session* session) {
  const std::lock_guard lock(lock_);
  std::erase(sessions_, session);
  size_ = sessions_.size();
}

void SessionRegistry::progress_others(const Session* own) {
  if (size_.load(std::memory_order_relaxed) < 2) return;
  const std::unique_lock lock(lock_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  for (Session* const session : sessions_)
    if (session != own) session->progress_alone();
}

}  // namespace gradbus
