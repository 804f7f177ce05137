#include "worker_agent/control/coordinator_orders.h"

#include "common/log.h"

namespace gradbus {

void CoordinatorOrders::take(const v1::CoordinatorMessage& message, Nanos now) {
  using Kind = v1::CoordinatorMessage;
  switch (message.message_case()) {
    case Kind::kTensorsReady: return tensors_ready(message.tensors_ready(), now);
    case Kind::kTensorsRetired: return tensors_retired(message.tensors_retired());
    case Kind::kTensorRefused: return tensor_refused(message.tensor_refused());
    case Kind::kStallNotice: return stall(message.stall_notice(), now);
    case Kind::kModeChanged: return mode_changed(message.mode_changed());
    case Kind::kShardLost: return shard_lost(message.shard_lost());
    case Kind::kShardsChanged: return shards_changed(message.shards_changed(), now);
    case Kind::kProgressQuery: return progress_query(message.progress_query());
    case Kind::kTraceJob: return trace_job(message.trace_job(), now);
    case Kind::kNcclConnect: return nccl_.connect(message.nccl_connect());
    case Kind::kNcclSettled: return nccl_.settle(message.nccl_settled(), now);
    case Kind::kMeasurePath: {
      const v1::MeasurePath& path = message.measure_path();
      return engine_.post(MeasurePath{path.probe_id(), path.address(), answers_});
    }
    default: return;
  }
}

void CoordinatorOrders::take_answers(Nanos now) {
  for (const JobBroken& event : broken_.take()) jobs_.broken(event, now);
  for (const PathAnswer& answer : answers_->take()) report_path(answer);
  nccl_.handle_events();
  for (const TensorGone& gone : gone_->take())
    if (WorkerControlJob* const job = jobs_.find(gone.job)) job->free_tensor(gone.tensor);
}

void CoordinatorOrders::report_path(const PathAnswer& answer) {
  v1::AgentMessage message;
  v1::PathMeasured& measured = *message.mutable_path_measured();
  measured.set_probe_id(answer.probe);
  measured.set_alpha_us(answer.alpha_us);
  measured.set_beta_ns(answer.beta_ns);
  coordinator_.send(message);
}

// ---- tensors

void CoordinatorOrders::tensors_ready(const v1::TensorsReady& ready, Nanos now) {
  const uint64_t id = ready.job_id();
  if (shard_) {
    if (const Status bad = jobs_.of_shard().place(ready); !bad.ok())
      jobs_.report_failure(id, bad, now);
    return;
  }
  WorkerControlJob* const job = jobs_.running(id);
  if (job == nullptr) return;
  // Placing many GB takes seconds, and spans that ranks have ended meanwhile are valid.
  const Nanos begun = monotonic_now();
  if (const Status placed = job->place(ready); !placed.ok())
    jobs_.report_failure(id, placed, now + (monotonic_now() - begun));
  nccl_.send_reports(*job);
}

void CoordinatorOrders::tensors_retired(const v1::TensorsRetired& retired) {
  if (shard_) return jobs_.of_shard().retire(retired);
  if (WorkerControlJob* const job = jobs_.running(retired.job_id())) job->retire(retired, gone_);
}

void CoordinatorOrders::tensor_refused(const v1::TensorRefused& refused) {
  if (WorkerControlJob* const job = jobs_.find(refused.job_id())) job->refuse(refused);
}

// ---- messages for ranks

void CoordinatorOrders::stall(const v1::StallNotice& notice, Nanos now) {
  WorkerControlJob* const job = jobs_.running(notice.job_id());
  if (job == nullptr) return;
  if (stall_log_.due(notice.job_id(), notice.tensor(), notice.round(), now))
    spdlog::warn("job \"{}\" waits: {}", job->name(), notice.text());
  job->notify(Code::kOk, notice.text());
}

void CoordinatorOrders::mode_changed(const v1::ModeChanged& change) {
  WorkerControlJob* const job = jobs_.running(change.job_id());
  if (job == nullptr) return;
  spdlog::info("job \"{}\": \"{}\" changes to mode {} at the next fence", job->name(),
               change.group(), change.mode());
  job->tell_mode(change.group(), change.mode());
}

// ---- shards

// Ignored by a job that has failed here or ended.
void CoordinatorOrders::shard_lost(const v1::ShardLost& lost) {
  spdlog::warn("{}", lost.text());
  engine_.post(LoseShard{lost.job_id(), lost.shard()});
}

void CoordinatorOrders::shards_changed(const v1::ShardsChanged& changed, Nanos now) {
  Status told;
  if (shard_) told = jobs_.of_shard().change(changed);
  if (WorkerControlJob* const job = jobs_.running(changed.job_id()))
    told = job->change_shards(changed);
  if (!told.ok()) jobs_.report_failure(changed.job_id(), told, now);
}

// ---- questions about a job

void CoordinatorOrders::progress_query(const v1::ProgressQuery& query) {
  WorkerControlJob* const job = jobs_.find(query.job_id());
  if (job == nullptr) return;
  v1::AgentMessage message;
  job->report_progress(query, *message.mutable_progress_report());
  coordinator_.send(message);
}

void CoordinatorOrders::trace_job(const v1::TraceJob& message, Nanos now) {
  if (WorkerControlJob* const job = jobs_.find(message.job_id()))
    jobs_.traces().set(*job, message, now);
}

}  // namespace gradbus
