// The end of a tensor on a node. Its ranks release it one by one, and the coordinator retires it
// when all ranks of the job have. Then the engine removes it, and its memory is free.
#include "common/errors.h"
#include "worker_agent/control/worker_control_job.h"

namespace gradbus {

Status WorkerControlJob::release(const AttachedClient& client, const UnregisterPacket& done) {
  const auto at = tensors_.find(done.tensor);
  const uint32_t local = client.local_rank;
  const bool viewed = done.viewed != 0;
  if (at == tensors_.end() || !at->second.users[local] || at->second.released[local] ||
      (viewed && at->second.viewed[local]))
    return bad_packet("field tensor of an unregistration is " + std::to_string(done.tensor) +
                      ", which this rank does not have");
  (viewed ? at->second.viewed : at->second.released).set(local);
  return {};
}

void WorkerControlJob::retire(const v1::TensorsRetired& retired,
                              const std::shared_ptr<Mailbox<TensorGone>>& gone) {
  for (const uint32_t tensor : retired.tensors()) {
    const auto at = tensors_.find(tensor);
    if (at == tensors_.end()) continue;
    const auto newest = newest_.find(at->second.spec().name);
    if (newest != newest_.end() && newest->second == tensor) newest_.erase(newest);
    deferred_.erase(tensor);
    if (std::exchange(at->second.retired, true)) continue;
    engine_.post(RemoveTensor{id(), tensor, gone});
  }
}

void WorkerControlJob::free_tensor(uint32_t tensor) {
  const auto gone = tensors_.extract(tensor);
  if (gone.empty()) return;
  const PlacedTensor& placed = gone.mapped();
  if (const auto* const gpu = std::get_if<GpuMemory>(&placed.memory);
      gpu != nullptr && nccl_rank_buffers_ > 0)
    kept_for_nccl_.push_back(gpu->device);
  arena_.free(placed.slot, placed.shape);
  quota_.bytes_used -= placed.charged;
  charged_ -= placed.charged;
}

}  // namespace gradbus
