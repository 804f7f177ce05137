// The part of a job that controls its NCCL process: orders from the conductor, and turns of
// tensors.
#include "worker_agent/data/worker_data_job.h"

namespace gradbus {

void WorkerDataJob::start_nccl(std::unique_ptr<NcclQueue> queue,
                               std::shared_ptr<Mailbox<NcclEvent>> events) {
  nccl_.queue = std::move(queue);
  nccl_.events = std::move(events);
}

void WorkerDataJob::order_nccl(const NcclQueue::Order& order) {
  if (nccl_.queue != nullptr) nccl_.queue->add(order);
}

void WorkerDataJob::take_turn(const CollectiveOperation& operation, uint64_t number) {
  EngineTensor& of = *tensor(operation.id().tensor);
  const Status taken = nccl_.queue->take_turn({number, of.id(), of.nccl_call()});
  if (!taken.ok()) fail(taken);
}

size_t WorkerDataJob::run_nccl() {
  size_t work = 0;
  while (nccl_.queue != nullptr && broken_.ok()) {
    const std::optional<NcclQueue::Ended> ended = nccl_.queue->poll(transport_->now());
    if (!ended) break;
    on_nccl_ended(*ended);
    ++work;
  }
  return work;
}

void WorkerDataJob::on_nccl_ended(const NcclQueue::Ended& ended) {
  NcclEvent event{start_.job, ended};
  // An open order is for a tensor that the engine does not know yet.
  const EngineTensor* of = ended.turn ? tensor(ended.tensor) : nullptr;
  event.ended.status = nccl_status(ended.status, of == nullptr ? "" : of->name());
  if (!ended.turn || !ended.status.ok()) nccl_.events->post(event);
  if (!ended.turn) return;
  if (!ended.status.ok()) return fail(event.ended.status);
  CollectiveOperation& operation = *tensors_[ended.tensor]->round().operations().front();
  operation.collective().on_turn_ended(actions_);
  run_actions(operation);
}

}  // namespace gradbus
