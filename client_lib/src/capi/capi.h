// What the files of the C interface share. Nothing else of the library is visible; no exception
// crosses (out of memory becomes GRADBUS_EXHAUSTED).
#pragma once

#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "client_lib/src/capi/structs.h"
#include "client_lib/src/capi/views.h"
#include "client_lib/src/delayed_tensor.h"
#include "client_lib/src/operation.h"
#include "client_lib/src/session.h"
#include "common/errors.h"
#include "gradbus/gradbus.h"

// Stays until gradbus_shutdown, so that calls with one that was unregistered are errors.
struct gradbus_tensor {
  gradbus_session* owner;
  gradbus::Session* session;
  bool unregistered;
  gradbus::DelayedTensor delayed;
  std::string name;
  std::shared_ptr<gradbus::capi::TensorViews> views;
};
struct gradbus_session {
  ~gradbus_session() {
    for (const auto& [unused, tensor] : tensors) tensor->views->detach();
    for (const auto& tensor : unregistered) tensor->views->detach();
  }
  std::unique_ptr<gradbus::Session> session;
  // By first slot and number of slots.
  std::mutex tensors_lock = {};
  std::map<std::pair<const gradbus::Tensor*, size_t>, std::unique_ptr<gradbus_tensor>> tensors = {};
  std::vector<std::unique_ptr<gradbus_tensor>> unregistered = {};  // under tensors_lock
  // Under tensors_lock; each until gradbus_device_tried.
  std::map<gradbus::DeviceId, std::shared_ptr<gradbus::DeviceTrialOffer>> trials = {};
};
struct gradbus_handle {
  std::vector<std::shared_ptr<gradbus::Operation>> operations;
  gradbus::Session* session;
};

namespace gradbus::capi {

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

inline Status missing(const char* argument) {
  return error("O900", std::string("argument ") + argument + " is NULL");
}

// GB-O900 for NULL, GB-O907 in a forked child of the process that opened the session.
inline Status usable(const gradbus_session* session) {
  if (session == nullptr) return missing("session");
  return session->session->is_of_this_process() ? Status() : forked_error();
}
inline Status usable(const gradbus_handle* handle) {
  if (handle == nullptr) return missing("handle");
  return handle->session->is_of_this_process() ? Status() : forked_error();
}

Status unusable(const gradbus_tensor* tensor);  // why
// The same, and GB-O900 for a tensor that was unregistered.
inline Status usable(const gradbus_tensor* tensor) {
  const bool good = tensor != nullptr && tensor->session->is_of_this_process();
  if (good && !tensor->unregistered) [[likely]]
    return {};
  return unusable(tensor);
}

// A number that does not fit becomes 255, which is no dtype, operation or collective and is refused
// as such.
template <typename Narrow>
Narrow narrow(int64_t number) {
  return static_cast<Narrow>(number >= 0 && number < 255 ? number : 255);
}

inline Nanos to_timeout(int64_t timeout_ms, const Session& session) {
  return timeout_ms < 0 ? session.options().op_timeout : timeout_ms * kMillisecond;
}

}  // namespace gradbus::capi
