// See guard.h.
#include "guard.h"

#include "errors.h"

namespace gradbus::python {
namespace {

constexpr const char* kClosed =
    "GB-O908 SHUT_DOWN: this Gradbus session was shut down | next: call gradbus.init() again and "
    "register anew";
constexpr const char* kForked =
    "GB-O907 FORKED: this process was forked from a rank after gradbus.init(); the session "
    "stays with the parent | next: use Gradbus in the parent only, or start the child with spawn "
    "and "
    "give it a rank of its own";

}  // namespace

OpenSession::OpenSession(const std::shared_ptr<Attachment>& attachment) : use_(attachment) {
  if (!use_) throw_error(GRADBUS_CLOSED, attachment->is_forked() ? kForked : kClosed);
}

SoleUse::SoleUse(std::atomic<bool>& flag, const std::string& what) : flag_(flag) {
  if (flag_.exchange(true, std::memory_order_acquire)) {
    throw_error(GRADBUS_BUSY, "GB-O905 IN_FLIGHT: another thread is waiting for " + what +
                                  " | next: let one thread wait for it");
  }
}

SoleUse::~SoleUse() { flag_.store(false, std::memory_order_release); }

std::string describe(const std::string& verb, const std::optional<std::string>& name) {
  return verb + ": " + (name ? "tensor '" + *name + "'" : std::string("the tensor"));
}

}  // namespace gradbus::python
