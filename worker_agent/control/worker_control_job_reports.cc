// The reports of a node to the coordinator about its part of a job.
#include "worker_agent/control/worker_control_job.h"

namespace gradbus {

void WorkerControlJob::report_progress(const v1::ProgressQuery& query,
                                       v1::ProgressReport& report) const {
  report.set_job_id(id());
  report.set_tensor(query.tensor());
  report.set_round(query.round());
  const auto newest = newest_.find(query.tensor());
  const auto of = newest == newest_.end() ? tensors_.end() : tensors_.find(newest->second);
  for (uint32_t local = 0; local < local_ranks_.size(); ++local) {
    const bool posted =
        of != tensors_.end() && of->second.local_reduction.posted(local, query.round());
    posted ? report.add_posted(local_ranks_[local]) : report.add_missing(local_ranks_[local]);
  }
}

void WorkerControlJob::report_counters(v1::JobCounters& counters, size_t& room, Nanos now) const {
  counters.set_job_id(id());
  counters.set_sent_bytes(traffic_->sent_bytes.load(std::memory_order_relaxed));
  counters.set_received_bytes(traffic_->received_bytes.load(std::memory_order_relaxed));
  counters.set_uncompressed_bytes(traffic_->uncompressed_bytes.value());
  counters.set_compressed_bytes(traffic_->compressed_bytes.value());
  for (uint32_t local = 0; local < local_ranks_.size(); ++local) {
    const ChannelHeader& header = channels_[local]->header();
    v1::RankCounters& rank = *counters.add_ranks();
    rank.set_rank(local_ranks_[local]);
    rank.set_operations(header.operations.load(std::memory_order_relaxed));
    rank.set_bytes(header.bytes.load(std::memory_order_relaxed));
    rank.set_wait_ns(header.wait_ns.load(std::memory_order_relaxed));
    rank.set_step(header.step.load(std::memory_order_relaxed));
    rank.set_losses(header.losses.load(std::memory_order_relaxed));
    rank.set_losses_not_finite(header.losses_not_finite.load(std::memory_order_relaxed));
    rank.set_loss_sum(header.loss_sum.load(std::memory_order_relaxed));
    const auto last = static_cast<Nanos>(header.last_call_ns.load(std::memory_order_relaxed));
    if (last > 0 && last <= now)
      rank.set_idle_ms(static_cast<uint64_t>((now - last) / kMillisecond));
  }
  report_boards(counters, room);
}

// The engine may have written about a tensor that has ended since.
void WorkerControlJob::report_boards(v1::JobCounters& counters, size_t& room) const {
  for (const auto& [tensor, sample] : fidelity_->take()) {
    const auto of = tensors_.find(tensor);
    if (of == tensors_.end() || room == 0) continue;
    --room;
    v1::Fidelity& fidelity = *counters.add_fidelity();
    fidelity.set_tensor(of->second.spec().name);
    fidelity.set_round(sample.round);
    fidelity.set_cosine(sample.cosine);
    fidelity.set_relative_error(sample.relative_error);
    fidelity.set_residual_ratio(sample.residual_ratio);
  }
  for (const auto& [tensor, noted] : staleness_->take()) {
    const auto of = tensors_.find(tensor);
    if (of == tensors_.end() || room == 0) continue;
    --room;
    v1::Staleness& staleness = *counters.add_staleness();
    staleness.set_tensor(of->second.spec().name);
    staleness.set_rounds(noted.rounds);
    staleness.set_steps(noted.steps);
    staleness.set_most(noted.most);
  }
}

}  // namespace gradbus
