#include "client_lib/src/capi/views.h"

#include "client_lib/src/capi/capi.h"

namespace gradbus::capi {

std::vector<std::shared_ptr<Segment>> TensorViews::add() {
  const std::lock_guard lock(lock_);
  std::vector<std::shared_ptr<Segment>> segments;
  for (Tensor* const slot : slots_) segments.push_back(session_->tensors().memory_of(*slot));
  ++count_;
  return segments;
}

void TensorViews::remove() {
  if (fork_depth() != fork_depth_) return;  // the lock may be held by the parent's thread
  const std::lock_guard lock(lock_);
  if (--count_ == 0 && unregisters_ && session_ != nullptr)
    (void)session_->tensors().unregister(slots_);
}

Status TensorViews::unregister() {
  const std::lock_guard lock(lock_);
  unregisters_ = true;
  return count_ > 0 ? session_->tensors().unregister_but_views(slots_)
                    : session_->tensors().unregister(slots_);
}

void TensorViews::detach() {
  const std::lock_guard lock(lock_);
  session_ = nullptr;
}

}  // namespace gradbus::capi

using namespace gradbus;
using namespace gradbus::capi;

gradbus_code gradbus_tensor_mapping(gradbus_tensor* tensor, gradbus_mapping** mapping) {
  if (mapping != nullptr) *mapping = nullptr;
  return guarded(tensor, [&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(check_given({{"mapping", mapping}}));
    auto made = std::make_unique<gradbus_mapping>();
    made->segments = tensor->views->add();
    made->views = tensor->views;
    *mapping = Handles::of_this_process().add(std::move(made));
    return {};
  });
}

// The memory stays mapped until the tensor is released: the agent may hand it out after that.
void gradbus_mapping_free(gradbus_mapping* mapping) {
  const std::unique_ptr<gradbus_mapping> known = Handles::of_this_process().take(mapping);
  if (known != nullptr) known->views->remove();
}
