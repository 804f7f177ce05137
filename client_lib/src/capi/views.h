// Views of a tensor's memory that outlive it: a mapping keeps the segments mapped, and a tensor
// that is unregistered while there are mappings of it is released when the last one is freed. So
// the agent never gives memory that somebody still views to another tensor.
//
// Any thread. After gradbus_shutdown, and in a forked child, a mapping keeps memory mapped and does
// nothing else.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "client_lib/src/delayed_tensor.h"
#include "client_lib/src/forks.h"
#include "client_lib/src/session.h"
#include "gradbus/gradbus.h"

namespace gradbus::capi {

class TensorViews {
 public:
  TensorViews(Session& session, std::vector<Tensor*> slots)
      : session_(&session), fork_depth_(fork_depth()), slots_(std::move(slots)) {}

  std::vector<std::shared_ptr<Segment>> add();
  void remove();
  // Unregisters the tensor, now or when the last view is gone.
  Status unregister();
  // The session ends.
  void detach();

 private:
  std::mutex lock_;
  Session* session_;  // null: it has ended
  const uint64_t fork_depth_;
  std::vector<Tensor*> slots_;
  size_t count_ = 0;
  bool unregisters_ = false;
};

}  // namespace gradbus::capi

struct gradbus_mapping {
  std::shared_ptr<gradbus::capi::TensorViews> views;
  std::vector<std::shared_ptr<gradbus::Segment>> segments;
};
