// What the files of the C interface share. Nothing else of the library is visible; no exception
// crosses (out of memory becomes GRADBUS_EXHAUSTED).
#pragma once

#include <algorithm>
#include <exception>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "client_lib/src/capi/handles.h"
#include "client_lib/src/capi/place.h"
#include "client_lib/src/capi/session_uses.h"
#include "client_lib/src/capi/structs.h"
#include "client_lib/src/capi/views.h"
#include "client_lib/src/delayed_tensor.h"
#include "client_lib/src/forks.h"
#include "client_lib/src/operation.h"
#include "client_lib/src/session.h"
#include "common/errors.h"
#include "gradbus/gradbus.h"

// Stays as long as its session, so that calls with one that was unregistered are errors.
struct gradbus_tensor {
  gradbus_session* owner;
  gradbus::Session* session;
  bool unregistered;
  gradbus::DelayedTensor delayed;
  std::string name;
  std::shared_ptr<gradbus::capi::TensorViews> views;
};
struct gradbus_session {
  explicit gradbus_session(std::unique_ptr<gradbus::Session> opened);

  // Constant, also when the session has ended.
  const gradbus::LaunchIdentity identity;
  const gradbus::capi::Place place;
  const uint64_t fork_depth = gradbus::fork_depth();
  mutable gradbus::capi::SessionUses uses = {};

  std::unique_ptr<gradbus::Session> session;  // null: it has ended
  // By first slot and number of slots.
  std::mutex tensors_lock = {};
  std::map<std::pair<const gradbus::Tensor*, size_t>, std::unique_ptr<gradbus_tensor>> tensors = {};
  std::vector<std::unique_ptr<gradbus_tensor>> unregistered = {};  // under tensors_lock
  // Under tensors_lock; each until gradbus_device_tried.
  std::map<gradbus::DeviceId, std::shared_ptr<gradbus::DeviceTrialOffer>> trials = {};
};
struct gradbus_handle {
  std::vector<std::shared_ptr<gradbus::Operation>> operations;
  gradbus_session* owner;
  gradbus::Session* session;
};

namespace gradbus::capi {

// A call with a session, or with one of its tensors or handles: gradbus_shutdown() waits for its
// end. None without an object, after the session's end, and in a forked child.
class Use {
 public:
  explicit Use(const gradbus_session* session) : Use(session, "session", session) {}
  explicit Use(const gradbus_tensor* tensor)
      : Use(tensor, "tensor", tensor == nullptr ? nullptr : tensor->owner) {
    if (tensor != nullptr && tensor->unregistered) unregistered_ = tensor;
  }
  explicit Use(const std::shared_ptr<gradbus_handle>& handle)
      : Use(handle.get(), "handle", handle == nullptr ? nullptr : handle->owner) {}
  ~Use() {
    if (entered_ != nullptr) entered_->uses.leave();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  explicit operator bool() const { return entered_ != nullptr && unregistered_ == nullptr; }
  // GB-O900, O907 or O908.
  Status why_not() const;

 private:
  Use(const void* object, const char* argument, const gradbus_session* owner)
      : argument_(object == nullptr ? argument : nullptr), owner_(owner) {
    if (owner != nullptr && owner->fork_depth == fork_depth() && owner->uses.enter()) [[likely]]
      entered_ = owner;
  }

  const char* argument_;  // that is missing
  const gradbus_session* owner_;
  const gradbus_session* entered_ = nullptr;
  const gradbus_tensor* unregistered_ = nullptr;
};

// Keeps the message for gradbus_last_error().
gradbus_code report(const Status& status);

// Runs `body`, which returns a Status, and turns whatever happens into a code and a message.
template <typename Body>
gradbus_code guarded(Body body) {
  try {
    return report(body());
  } catch (const std::bad_alloc&) {
    return report(error("S201", "this process is out of memory"));
  } catch (const std::exception& problem) {
    return report(error("X001", problem.what()));
  }
}

// The same, if the object's session can be used.
template <typename Object, typename Body>
gradbus_code guarded(const Object& object, Body body) {
  return guarded([&]() -> Status {
    const Use use(object);
    return use ? body() : use.why_not();
  });
}

inline Status missing(const char* argument) {
  return error("O900", std::string("argument ") + argument + " is NULL");
}
struct Argument {
  const char* name;
  const void* value;
};
// GB-O900 naming the first one that is NULL.
inline Status check_given(std::initializer_list<Argument> arguments) {
  for (const Argument& argument : arguments)
    if (argument.value == nullptr) return missing(argument.name);
  return {};
}
// GB-O900 for an `n` that no array has, such as -1.
inline Status check_number(size_t n, size_t most) {
  if (n <= most) return {};
  return error("O900", "argument n is " + std::to_string(n) + "; at most " + std::to_string(most) +
                           " are allowed");
}
Status ended_error(const gradbus_session& session);
Status unregistered_error(const gradbus_tensor& tensor);

// A number that does not fit becomes 255, which is no dtype, operation or collective and is refused
// as such.
template <typename Narrow>
Narrow narrow(int64_t number) {
  return static_cast<Narrow>(number >= 0 && number < 255 ? number : 255);
}

// Thirty years: times must not wrap when this is added.
inline constexpr int64_t kTimeoutMsMax = 1'000'000'000'000;

inline Nanos to_timeout(int64_t timeout_ms, const Session& session) {
  return timeout_ms < 0 ? session.options().op_timeout
                        : std::min(timeout_ms, kTimeoutMsMax) * kMillisecond;
}

}  // namespace gradbus::capi
