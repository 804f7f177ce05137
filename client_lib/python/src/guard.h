// Two guards that every method of the bound classes takes first: the session is open and ours, and
// no second thread is inside the same object. Call with the GIL held; both throw Python exceptions.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "attachment.h"

namespace gradbus::python {

// A Use of the session; the constructor throws ClosedError after shutdown() and in a forked child.
class OpenSession {
 public:
  explicit OpenSession(const std::shared_ptr<Attachment>& attachment);

 private:
  Attachment::Use use_;
};

// Holds `flag`, or throws BusyError naming `what` when another thread does.
class SoleUse {
 public:
  SoleUse(std::atomic<bool>& flag, const std::string& what);
  ~SoleUse();
  SoleUse(const SoleUse&) = delete;
  SoleUse& operator=(const SoleUse&) = delete;

 private:
  std::atomic<bool>& flag_;
};

// "allreduce: tensor 'loss'", or "allreduce: the tensor" without a name.
std::string describe(const std::string& verb, const std::optional<std::string>& name);

}  // namespace gradbus::python
