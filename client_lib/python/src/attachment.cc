// See attachment.h.
#include "attachment.h"

#include <unistd.h>

#include <chrono>
#include <utility>

namespace gradbus::python {

Attachment::Attachment(gradbus_session* session, int64_t op_timeout_ms)
    : session_(session), op_timeout_ms_(op_timeout_ms), owner_(getpid()) {}

Attachment::~Attachment() {
  if (!is_forked()) end_session();
}

Attachment::Use::Use(std::shared_ptr<Attachment> attachment)
    : attachment_(std::move(attachment)), entered_(attachment_->enter()) {}

Attachment::Use::~Use() {
  if (entered_) attachment_->leave();
}

// is_forked comes first everywhere: in a child another thread of the parent may have held the
// mutex.
bool Attachment::is_forked() const { return getpid() != owner_; }

bool Attachment::is_open() const {
  if (is_forked()) return false;
  const std::lock_guard lock(mutex_);
  return !closing_;
}

bool Attachment::enter() {
  if (is_forked()) return false;
  const std::lock_guard lock(mutex_);
  if (closing_) return false;
  ++uses_;
  return true;
}

void Attachment::leave() {
  if (is_forked()) return;
  const std::lock_guard lock(mutex_);
  if (--uses_ == 0 && closing_) {
    end_session();
    idle_.notify_all();
  }
}

void Attachment::close(int64_t patience_ms) {
  if (is_forked()) return;
  std::unique_lock lock(mutex_);
  closing_ = true;
  if (uses_ == 0) return end_session();
  idle_.wait_for(lock, std::chrono::milliseconds(patience_ms), [&] { return ended_; });
}

void Attachment::end_session() {
  if (!std::exchange(ended_, true)) gradbus_shutdown(session_);
}

}  // namespace gradbus::python
