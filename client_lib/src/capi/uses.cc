// What the calls of the C interface check first: that the session may be used.
#include "client_lib/src/capi/capi.h"

gradbus_session::gradbus_session(std::unique_ptr<gradbus::Session> opened)
    : identity(opened->identity()), place(opened->joined()), session(std::move(opened)) {}

namespace gradbus::capi {

Status ended_error(const gradbus_session& session) {
  return error("O908", "the session of rank " + std::to_string(session.place.rank) + " of job \"" +
                           session.identity.job + "\" was shut down");
}

Status unregistered_error(const gradbus_tensor& tensor) {
  return error("O900", "tensor \"" + tensor.name + "\" was unregistered",
               "register it again, or unregister it after its last use");
}

Status Use::why_not() const {
  if (argument_ != nullptr) return missing(argument_);
  if (owner_->fork_depth != fork_depth()) return forked_error();
  return unregistered_ != nullptr && entered_ != nullptr ? unregistered_error(*unregistered_)
                                                         : ended_error(*owner_);
}

}  // namespace gradbus::capi
