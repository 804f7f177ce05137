#include "worker_agent/data/worker_data_job.h"

#include <algorithm>
#include <cstring>

#include "common/errors.h"
#include "common/log.h"
#include "proto/tensor_ids.h"

namespace gradbus {
namespace {

constexpr size_t kSubmissionsPerTurn = 64;  // per client, then other clients get their turn

}  // namespace

WorkerDataJob::WorkerDataJob(StartJob start, Transport* transport)
    : start_(std::move(start)),
      transport_(transport),
      deferred_(start_.local_ranks.size()),
      overflow_(start_.local_ranks.size()),
      starts_(start_) {
  if (remote())
    links_ = std::make_unique<JobLinks>(
        *transport_, LinkIdentity{start_.job, start_.epoch, start_.link_key, start_.agent_index},
        start_.agent_addresses, start_.traffic->queued);
}

std::vector<int> WorkerDataJob::doorbells() const {
  std::vector<int> fds;
  for (const auto& channel : start_.channels) fds.push_back(channel->doorbell.get());
  return fds;
}

WorkerDataJob::~WorkerDataJob() {
  for (const auto& [segment, region] : regions_) transport_->unregister_memory(region);
}

void WorkerDataJob::fail(const Status& status) {
  if (broken_.ok()) broken_ = status;
}

// ---- tensors

Result<RegionId> WorkerDataJob::region_of(const std::shared_ptr<Segment>& segment) {
  if (!remote()) return RegionId{};
  for (const auto& [known, region] : regions_)
    if (known == segment) return region;
  Result<RegionId> region = transport_->register_memory(segment->memory());
  if (region.ok()) regions_.emplace_back(segment, region.value());
  return region;
}

// Only this function of the data plane allocates: it reserves everything that a round needs.
Status WorkerDataJob::add_tensor(AddTensor add) {
  Result<RegionId> region = region_of(add.segment);
  if (!region.ok()) return region.status();
  const uint32_t id = add.plan.id;
  const uint64_t budget_bytes = add.plan.spec.budget_bytes;
  const PsPlan* const ps = add.plan.ps();
  const uint32_t replaces = ps != nullptr && ps->moved_from ? ps->moved_from->id : id;
  if (tensors_.size() <= id) tensors_.resize(id + 1);
  tensors_[id] =
      std::make_unique<EngineTensor>(start_, std::move(add), region.value(), transport_->clock());
  ++live_;
  reducing_.reserve(live_);
  coding_.reserve(live_);
  if (nccl_.queue != nullptr) nccl_.queue->reserve(live_);
  assisting_.reserve(live_);
  GRADBUS_RETURN_IF_ERROR(open_tensor(*tensors_[id]));
  if (budget_bytes > 0 && tensors_[id]->leaves_node())
    GRADBUS_RETURN_IF_ERROR(starts_.add(
        id, {tensors_[id]->bytes(), budget_bytes, tensors_[id]->order().sums}, *links_));
  if (replaces != id && tensor(replaces) != nullptr) tensors_[id]->take_place_of(*tensor(replaces));
  return {};
}

Status WorkerDataJob::open_tensor(EngineTensor& tensor) {
  GRADBUS_RETURN_IF_ERROR(tensor.open_operations(start_, *transport_));
  queue_.reserve(tensor.round().operations().size() + 1);
  for (const auto& operation : tensor.round().operations())
    GRADBUS_RETURN_IF_ERROR(open_operation(*operation));
  return {};
}

Status WorkerDataJob::open_operation(CollectiveOperation& operation) {
  const CollectiveNeeds& needs = operation.collective().needs();
  actions_.reserve(needs.actions_max);
  for (const CollectiveNeeds::Target& target : needs.targets)
    GRADBUS_RETURN_IF_ERROR(links_->expect_sends(target.peer, target.sends_max));
  for (const uint32_t peer : needs.sources) links_->expect_credits(peer, 1);
  operation.collective().open(actions_);
  for (const uint32_t peer : lost_) operation.collective().on_peer_lost(peer, actions_);
  run_actions(operation);
  const auto mine = [&](const EarlyCredit& credit) { return credit.operation == operation.id(); };
  for (const EarlyCredit& credit : early_credits_)
    if (mine(credit)) on_credit(operation, credit.from, credit.round);
  std::erase_if(early_credits_, mine);
  return {};
}

EngineTensor* WorkerDataJob::tensor(uint32_t id) {
  return id < tensors_.size() ? tensors_[id].get() : nullptr;
}

CollectiveOperation* WorkerDataJob::operation(OperationId id) {
  EngineTensor* const of = tensor(id.tensor);
  if (of == nullptr || id.index >= of->round().operations().size()) return nullptr;
  return of->round().operations()[id.index].get();
}

// ---- one turn

size_t WorkerDataJob::do_work() {
  size_t work = 0;
  if (ended_links_.wake_at() != 0) fail(ended_links_.overdue(transport_->now()));
  for (uint32_t rank = 0; rank < start_.channels.size() && broken_.ok(); ++rank)
    work += take_submissions(rank);
  for (; links_ != nullptr && broken_.ok(); ++work) {
    const std::optional<uint32_t> next = starts_.next(*links_);
    if (!next) break;
    note(*tensors_[*next], TraceKind::kQueue);
    begin(*tensors_[*next]);
  }
  work += reduce_local();
  work += resume_coded();
  work += assist();
  work += run_nccl();
  work += flush_completions();
  if (!retiring_.empty()) work += retire();
  if (links_ != nullptr) work += links_->flush();
  if (links_ != nullptr) start_.traffic->waiting_frames.set(links_->waiting_frames());
  return work;
}

// A client may submit a tensor as soon as it knows it. The conductor has posted AddTensor by then,
// but this turn may have taken its commands before. So a record of an unknown tensor is kept until
// the next turn, which begins with the commands. Only then is it an error.
size_t WorkerDataJob::take_submissions(uint32_t local_rank) {
  std::optional<Submission>& deferred = deferred_[local_rank];
  if (deferred) {
    on_submission(local_rank, *deferred);
    deferred.reset();
  }
  Submission record;
  for (size_t taken = 0; taken < kSubmissionsPerTurn; ++taken) {
    switch (start_.channels[local_rank]->submissions.pop(record)) {
      case Pop::kEmpty: return taken;
      case Pop::kRecord:
        if (tensor(record.tensor) == nullptr) {
          deferred = record;
          return taken + 1;
        }
        on_submission(local_rank, record);
        break;
      case Pop::kCorrupt:
        fail(error("S210", "rank " + std::to_string(start_.local_ranks[local_rank]) + " of job \"" +
                               start_.name + "\": field tail of its submission ring"));
        return taken;
    }
  }
  return kSubmissionsPerTurn;
}

std::string WorkerDataJob::who(uint32_t local_rank) const {
  return "rank " + std::to_string(start_.local_ranks[local_rank]) + " of job \"" + start_.name +
         "\"";
}

void WorkerDataJob::on_submission(uint32_t local_rank, const Submission& record) {
  EngineTensor* posted = tensor(record.tensor);
  // on one node a round may end before its record is read; the record only requests help
  if (posted == nullptr && is_retired(record.tensor)) return;
  if (posted == nullptr)
    return fail(error("S210", who(local_rank) + ": field tensor of a submission is " +
                                  std::to_string(record.tensor)));
  if (const Status status = posted->check_request(record); !status.ok())
    return fail(status.with_context(who(local_rank)));
  // On one node the clients sum without the agent; it helps once all have posted.
  if (!posted->remote()) {
    if (posted->ask_for_assistance(record.round)) assisting_.push_back(posted);
    return;
  }
  if (const Status status = posted->post(local_rank, record); !status.ok())
    return fail(status.with_context(who(local_rank)));
  start_.traffic->lateness.observe(posted->lateness(transport_->now()));
  note(*posted, TraceKind::kRanks);
  if (posted->ready_round() == 0) return;
  // Rounds that only read or write a residual exchange nothing.
  const bool exchanges = posted->request().kind == SubmissionKind::kPosted;
  if (!exchanges || !starts_.has(posted->id())) return begin(*posted);
  note(*posted, TraceKind::kQueue);
  if (const Status status = starts_.ready(posted->id(), posted->ready_round(), *links_);
      !status.ok())
    fail(status);
}

void WorkerDataJob::begin(EngineTensor& tensor) {
  const uint64_t round = tensor.ready_round();
  tensor.begun(round, transport_->now());
  Status status = tensor.sum().start();
  if (status.ok())
    status = tensor.round().begin({round, tensor.request(), tensor.block_bytes()}, queue_);
  if (!status.ok()) return fail(status);
  if (tensor.reduces() && !tensor.empty() && !tensor.round().done()) {
    tensor.start_reducing();
    reducing_.push_back(&tensor);
  }
  proceed(tensor, {});
  run_queue();
}

bool WorkerDataJob::idle() const {
  if (!assisting_.empty()) return false;
  const auto works = [](EngineTensor* tensor) { return tensor->sum().is_polled(); };
  if (std::any_of(reducing_.begin(), reducing_.end(), works)) return false;
  if (std::any_of(deferred_.begin(), deferred_.end(),
                  [](const auto& deferred) { return deferred.has_value(); }))
    return false;
  return std::all_of(start_.channels.begin(), start_.channels.end(),
                     [](const auto& channel) { return channel->submissions.empty(); });
}

void WorkerDataJob::set_sleeping(bool sleeping) {
  for (const auto& channel : start_.channels)
    channel->header().agent_sleeping.store(sleeping ? 1 : 0, std::memory_order_seq_cst);
}

// ---- actions

// One event of `operation` has appended actions. Carries them out, then the events that follow, one
// after the other.
void WorkerDataJob::run_actions(CollectiveOperation& operation) {
  carry_out_actions(operation);
  run_queue();
}

void WorkerDataJob::run_queue() {
  while (!queue_.empty()) {
    const OperationEvent event = queue_.take();
    Collective& collective = event.operation->collective();
    if (event.kind == OperationEvent::Kind::kChunk) {
      collective.on_chunk_reduced(event.chunk, actions_);
      carry_out_actions(*event.operation);
      continue;
    }
    collective.begin(event.round, event.block_bytes, actions_);
    carry_out_actions(*event.operation);
    if (event.kind != OperationEvent::Kind::kBeginWhole) continue;
    for (uint32_t chunk = 0; chunk < event.operation->plan().chunks(); ++chunk) {
      collective.on_chunk_reduced(chunk, actions_);
      carry_out_actions(*event.operation);
    }
  }
}

// kFinish comes last.
void WorkerDataJob::carry_out_actions(CollectiveOperation& operation) {
  const bool ended = !actions_.empty() && actions_.back().kind == Action::Kind::kFinish;
  for (const Action& action : actions_) run(operation, action);
  actions_.clear();
  if (!ended) return;
  EngineTensor& tensor = *tensors_[operation.id().tensor];
  proceed(tensor, tensor.round().ended(operation, queue_));
}

void WorkerDataJob::run(CollectiveOperation& operation, const Action& action) {
  switch (action.kind) {
    case Action::Kind::kCredit: return send_credit(operation, action);
    case Action::Kind::kSend: return send_data(operation, action);
    case Action::Kind::kStash: return operation.stash(action.slot, links_->payload(action.buffer));
    case Action::Kind::kAccumulate: {
      const TracedWork work(traced(operation), TraceKind::kAccumulate, action.bytes);
      return operation.accumulate(action, payload(operation, action));
    }
    case Action::Kind::kFinalize: {
      const TracedWork work(traced(operation), TraceKind::kDeliver);
      return operation.finalize(action.chunk);
    }
    case Action::Kind::kDeliver: {
      const TracedWork work(traced(operation), TraceKind::kDeliver, action.bytes);
      return operation.deliver(action, payload(operation, action));
    }
    case Action::Kind::kRelease: return links_->release(action.buffer);
    case Action::Kind::kTakeTurn: return take_turn(operation, action.total);
    case Action::Kind::kFinish: return;  // carry_out_actions
  }
}

// The tensor's round has taken an event. The round may be over when this returns.
void WorkerDataJob::proceed(EngineTensor& tensor, const Status& status) {
  if (!status.ok()) return fail(status.with_context("job \"" + start_.name + "\""));
  if (tensor.round().waits() && std::ranges::count(coding_, &tensor) == 0)
    coding_.push_back(&tensor);
  if (tensor.round().done() && tensor.running()) finish(tensor);
}

void WorkerDataJob::send_data(CollectiveOperation& operation, const Action& action) {
  EngineTensor& of = *tensor(operation.id().tensor);
  FrameHeader header = operation.frame(start_.job, start_.epoch, action);
  of.round().complete(header, operation);
  if (RoundTrace* const round = traced(operation); round != nullptr)
    round->note(TraceKind::kSend, transport_->now(), action.bytes);
  links_->send_data(action.peer, header, operation.slice(action), {operation.id(), action},
                    of.order().of(action.frame));
}

void WorkerDataJob::send_credit(CollectiveOperation& operation, const Action& action) {
  Action credit = action;
  credit.frame = FrameKind::kCredit;
  FrameHeader header = operation.frame(start_.job, start_.epoch, credit);
  header.source = start_.agent_index;
  links_->send_credit(action.peer, header);
}

std::span<const std::byte> WorkerDataJob::payload(const CollectiveOperation& operation,
                                                  const Action& action) const {
  return action.stashed ? operation.stashed(action) : links_->payload(action.buffer);
}

void WorkerDataJob::finish(EngineTensor& tensor) {
  const uint64_t round = tensor.begun_round();
  tensor.finished();
  starts_.ended(tensor.id());
  count_round(tensor);
  start_.trace->on() ? tensor.trace().finish(*start_.trace, tensor.id(), round)
                     : tensor.trace().clear();
  if (const Status status = tensor.sum().deliver(); !status.ok()) return fail(status);
  tensor.round().finished();
  for (uint32_t rank = 0; rank < start_.channels.size(); ++rank)
    push_completion(
        rank,
        {tensor.id(), static_cast<uint32_t>(Code::kOk), round, tensor.round().staleness(), {}});
  tensor.local_reduction().wake();
}

void WorkerDataJob::push_completion(uint32_t local_rank, const CompletionRecord& record) {
  std::vector<CompletionRecord>& waiting = overflow_[local_rank];
  const Push pushed =
      waiting.empty() ? start_.channels[local_rank]->completions.push(record) : Push::kFull;
  if (pushed == Push::kDone) return;
  if (pushed == Push::kCorrupt)
    return fail(error("S210", who(local_rank) + ": field head of its completion ring"));
  // An honest client starts no round before it knows that the last one is over.
  if (waiting.size() >= tensors_.size())
    return fail(error("S210", who(local_rank) + " does not read its completion ring: " +
                                  std::to_string(waiting.size()) + " records wait"));
  waiting.push_back(record);
}

// A ring is full when a client has not read it for long. At most one record per tensor waits
// (push_completion).
size_t WorkerDataJob::flush_completions() {
  size_t pushed = 0;
  for (uint32_t rank = 0; rank < overflow_.size(); ++rank) {
    std::vector<CompletionRecord>& waiting = overflow_[rank];
    size_t done = 0;
    for (; done < waiting.size() &&
           start_.channels[rank]->completions.push(waiting[done]) == Push::kDone;
         ++done)
      if (EngineTensor* of = tensor(waiting[done].tensor); of != nullptr)
        of->local_reduction().wake();
    waiting.erase(waiting.begin(), waiting.begin() + static_cast<ptrdiff_t>(done));
    pushed += done;
  }
  return pushed;
}

void WorkerDataJob::end() {
  // The transport may still have events of its links.
  if (broken_.ok()) broken_ = Status(Code::kClosed, "the job has ended");
  nccl_.queue.reset();
  if (links_ != nullptr) links_->close();
}

}  // namespace gradbus
