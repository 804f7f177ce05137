#include "client_lib/src/capi/handles.h"

#include <pthread.h>

#include <vector>

#include "client_lib/src/capi/capi.h"

namespace gradbus::capi {

// Never destroyed: other threads may make calls while the process ends.
Handles& Handles::of_this_process() {
  static auto* const handles = new Handles;
  static const int at_fork =
      pthread_atfork([] { handles->lock_.lock(); }, [] { handles->lock_.unlock(); },
                     [] { handles->lock_.unlock(); });
  (void)at_fork;  // fails when memory is short, and then the next allocation does, too
  return *handles;
}

gradbus_handle* Handles::add(std::shared_ptr<gradbus_handle> handle) {
  gradbus_handle* const known = handle.get();
  const std::lock_guard lock(lock_);
  handles_.emplace(known, std::move(handle));
  return known;
}

std::shared_ptr<gradbus_handle> Handles::find(const gradbus_handle* handle) {
  const std::lock_guard lock(lock_);
  const auto found = handles_.find(handle);
  return found == handles_.end() ? nullptr : found->second;
}

std::shared_ptr<gradbus_handle> Handles::take(const gradbus_handle* handle) {
  const std::lock_guard lock(lock_);
  const auto found = handles_.extract(handle);
  return found.empty() ? nullptr : found.mapped();
}

gradbus_mapping* Handles::add(std::unique_ptr<gradbus_mapping> mapping) {
  gradbus_mapping* const known = mapping.get();
  const std::lock_guard lock(lock_);
  mappings_.emplace(known, std::move(mapping));
  return known;
}

std::unique_ptr<gradbus_mapping> Handles::take(const gradbus_mapping* mapping) {
  const std::lock_guard lock(lock_);
  auto found = mappings_.extract(mapping);
  return found.empty() ? nullptr : std::move(found.mapped());
}

// What is taken out is destroyed after the lock: that takes time.
void Handles::end_all_of(const gradbus_session& session) {
  std::vector<std::shared_ptr<gradbus_handle>> ending;
  const std::lock_guard lock(lock_);
  for (auto handle = handles_.begin(); handle != handles_.end();) {
    const bool ends = handle->second->owner == &session;
    if (ends) ending.push_back(std::move(handle->second));
    handle = ends ? handles_.erase(handle) : std::next(handle);
  }
}

void Handles::retire(std::unique_ptr<gradbus_session> session) {
  std::unique_ptr<gradbus_session> oldest;
  const std::lock_guard lock(lock_);
  ended_.push_back(std::move(session));
  if (ended_.size() <= kEndedSessionsMax) return;
  oldest = std::move(ended_.front());
  ended_.pop_front();
}

}  // namespace gradbus::capi
