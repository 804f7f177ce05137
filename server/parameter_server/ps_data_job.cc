#include "server/parameter_server/ps_data_job.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/text/error_text.h"
#include "proto/tensor_ids.h"

namespace gradbus {
namespace {

Nanos earlier(Nanos a, Nanos b) { return a == 0 || (b != 0 && b < a) ? b : a; }

}  // namespace

PsDataJob::PsDataJob(StartShardJob start, Transport* transport)
    : start_(std::move(start)),
      transport_(transport),
      links_(*transport_, {start_.job, start_.epoch, start_.link_key, start_.agents + start_.shard},
             start_.addresses, start_.traffic->queued),
      shard_set_{0, start_.run, start_.shard, {}} {
  for (uint32_t shard = 0; shard < start_.shards; ++shard) shard_set_.members.push_back(shard);
  snapshots_ = std::make_unique<ShardSnapshots>(
      start_.keeper, snapshot_place(shard_set_.place, false), transport_->now());
  deferred_.reserve(links_.buffers_max());
}

SnapshotPlace PsDataJob::snapshot_place(uint32_t place, bool promoted) const {
  return {start_.keeper == nullptr ? "" : start_.keeper->directory(),
          start_.name,
          shard_set_.run,
          place,
          static_cast<uint32_t>(shard_set_.members.size()),
          promoted};
}

void PsDataJob::fail(const Status& status) {
  if (broken_.ok()) broken_ = status;
}

Status PsDataJob::add_tensor(const AddShardTensor& add) {
  const Status added = open_tensor(add);
  if (!added.ok()) {
    lacks_tensor_ = true;
    return added;
  }
  take_deferred();
  return {};
}

// Only this function allocates: it reserves room for every answer that can be in flight.
Status PsDataJob::open_tensor(const AddShardTensor& add) {
  GRADBUS_RETURN_IF_ERROR(add.restore_failed);
  Result<std::unique_ptr<ShardTensor>> made = make_shard_tensor(add.plan, *transport_);
  if (!made.ok()) return made.status();
  const uint32_t id = add.plan.collective.tensor;
  const bool copy = add.copy;
  Tensors& tensors = copy ? backups_ : tensors_;
  if (tensors.size() <= id) tensors.resize(id + 1);
  tensors[id] = made.take();
  if (copy) tensors[id]->begin_as_backup();
  if (add.plan.mode.restore) tensors[id]->restore(add.restored);
  due_.reserve(std::max(due_.capacity(), tensors[id]->chunks_stored()));
  if (add.plan.mode.replicas > 1) GRADBUS_RETURN_IF_ERROR(open_copies(*tensors[id]));
  GRADBUS_RETURN_IF_ERROR(expect_answers(*tensors[id]));
  begin_shard_set(add);
  return add.begins_move ? begin_move(add.plan) : Status();
}

Status PsDataJob::expect_answers(const ShardTensor& tensor) {
  const auto answers = static_cast<uint32_t>(tensor.answers_max());
  answers_.reserve(std::max<size_t>(answers_.capacity(), size_t{answers} * start_.agents));
  for (uint32_t agent = 0; agent < start_.agents && answers > 0; ++agent)
    GRADBUS_RETURN_IF_ERROR(links_.expect_sends(agent, answers));
  return {};
}

size_t PsDataJob::do_work() {
  if (wake_at_ != 0) run_deadlines();
  if (ended_links_.wake_at() != 0) fail(ended_links_.overdue(transport_->now()));
  if (!predecessors_.empty()) forget_predecessors();
  if (!retiring_.empty()) retire();
  size_t copied = snapshots_->wake_at() == 0 ? 0 : snapshots_->do_work(transport_->now(), tensors_);
  if (lost_snapshots_ != nullptr) copied += lost_snapshots_->do_work(transport_->now(), backups_);
  const size_t sent = links_.flush();
  start_.traffic->waiting_frames.set(links_.waiting_frames());
  return copied + sent;
}

Nanos PsDataJob::wake_at() const {
  const Nanos next = earlier(earlier(wake_at_, snapshots_->wake_at()), ended_links_.wake_at());
  return lost_snapshots_ == nullptr ? next : earlier(next, lost_snapshots_->wake_at());
}

// The tensors do not change after this.
void PsDataJob::end() {
  ending_ = true;
  links_.close();
  if (lacks_tensor_) return;
  snapshots_->end(tensors_);
  if (lost_snapshots_ != nullptr) lost_snapshots_->end(backups_);
}

bool PsDataJob::ended() const {
  return links_.closed() && snapshots_->ended() &&
         (lost_snapshots_ == nullptr || lost_snapshots_->ended());
}

void PsDataJob::run_deadlines() {
  const Nanos now = transport_->now();
  if (now < wake_at_) return;
  wake_at_ = 0;
  for (const auto& tensor : tensors_)
    if (tensor != nullptr) run_deadlines(*tensor, now);
  for (const auto& backup_replica : backups_)
    if (backup_replica != nullptr && answers(*backup_replica)) run_deadlines(*backup_replica, now);
}

void PsDataJob::run_deadlines(ShardTensor& tensor, Nanos now) {
  wake_at_ = earlier(wake_at_, tensor.deadlines(now, due_));
  for (const uint32_t chunk : due_) {
    if (!forwards(tensor)) {
      tensor.on_deadline(chunk, tensor.steps_of(chunk), answers_);
      send_answers(tensor);
      continue;
    }
    FrameHeader header = tensor.frame({.chunk = chunk, .round = tensor.steps_of(chunk)});
    header.chunk = chunk;
    header.operation = 0;
    header.total = 0;
    header.length = 0;
    put(tensor, chunk, {0, kNoBuffer, header});
  }
  due_.clear();
}

// ---- links

Status PsDataJob::on_accepted(LinkId link, const FrameHeader& hello) {
  return links_.accept(link, hello).with_context("job \"" + start_.name + "\"");
}

void PsDataJob::on_closed(const TransportEvent& event, const std::string& why) {
  const uint32_t peer = links_.peer_of(event.link);
  const bool incoming = !links_.outgoing(event.link);
  links_.on_closed(event.link);
  if (ending_) return;
  if (links_.dropped(peer)) {
    if (incoming && is_copied(peer) && !links_.receives_from(peer)) promote(peer);
    return;
  }
  const bool shard = is_shard(peer);
  const char* corrupt = why.find("GB-D612") == std::string::npos ? "D601" : "D612";
  const Status ended =
      error(event.code == Code::kCorrupt ? corrupt : "P102",
            "job \"" + start_.name + "\": the link between shard " + std::to_string(start_.shard) +
                " and " + (shard ? "shard " : "agent ") +
                std::to_string(shard ? peer - start_.agents : peer) + " ended" +
                (why.empty() ? "" : " (" + what_of(why) + ")"));
  if (!shard || event.code == Code::kCorrupt) return fail(ended);
  ended_links_.add(peer, ended, transport_->now());
}

// ---- pushes

Status PsDataJob::check_frame(const TransportEvent& event, const FrameHeader& header) const {
  const uint32_t peer = links_.peer_of(event.link);
  const auto kind = static_cast<FrameKind>(header.kind);
  const bool goes_this_way =
      links_.outgoing(event.link)
          ? is_shard(peer) && kind == FrameKind::kCredit
          : !is_shard(peer) || kind == FrameKind::kForward || kind == FrameKind::kMoved;
  if (header.job == start_.job && header.epoch == start_.epoch && goes_this_way) return {};
  return error("D601", "a frame of peer " + std::to_string(peer) + " is of job " +
                           std::to_string(header.job) + " epoch " + std::to_string(header.epoch) +
                           " kind " + std::to_string(header.kind) +
                           ", its link carries pushes of job " + std::to_string(start_.job) +
                           " epoch " + std::to_string(start_.epoch));
}

void PsDataJob::on_received(const TransportEvent& event) {
  if (event.code != Code::kOk || !broken_.ok() || ending_) return;
  if (links_.dropped(links_.peer_of(event.link))) return;
  FrameHeader header;
  std::memcpy(&header, links_.frame(event.link, event.token, sizeof(header)).data(),
              sizeof(header));
  if (const Status status = check_frame(event, header); !status.ok()) return fail(status);
  start_.traffic->received_bytes.fetch_add(header.length, std::memory_order_relaxed);
  start_.traffic->of_peer(links_.peer_of(event.link)).received_bytes.add(header.length);
  if (links_.outgoing(event.link)) {
    links_.release_credit(event.link, event.token);
    return on_taken_there(links_.peer_of(event.link), header);
  }
  const DeferredPush push{links_.peer_of(event.link), links_.buffer_of(event.link, event.token),
                          header};
  if (must_wait(push)) return deferred_.push_back(push);
  on_push(push);
}

// The number of waiting pushes is bounded by their receive buffers.
bool PsDataJob::must_wait(const DeferredPush& push) const {
  if (push.header.kind == static_cast<uint8_t>(FrameKind::kMoved))
    return push.header.tensor < kTensorIdsMax && !is_retired(push.header.tensor) &&
           !predecessors_.contains(push.header.tensor);
  const bool copy = is_shard(push.peer) || is_of_backup(push);
  const ShardTensor* of = copy ? backup_replica(push.header.tensor) : tensor(push.header.tensor);
  if (of == nullptr)
    return push.header.tensor < kTensorIdsMax && !is_predecessor(push.header.tensor) &&
           !is_retired(push.header.tensor);
  if (is_shard(push.peer)) return false;
  return (copy && !answers(*of)) || of->must_wait(push.peer, push.header) ||
         (!copy && is_still_ahead(*of, push));
}

void PsDataJob::on_push(const DeferredPush& push) {
  if (links_.dropped(push.peer)) return;  // its agent pushes it again
  if (is_retired(push.header.tensor)) return links_.release(push.buffer);  // its step is closed
  if (push.header.kind == static_cast<uint8_t>(FrameKind::kMoved)) {
    if (const Status status = on_moved(push); !status.ok()) fail(status);
    return links_.release(push.buffer);
  }
  const bool copy = is_shard(push.peer) || is_of_backup(push);
  ShardTensor* const of = copy ? backup_replica(push.header.tensor) : tensor(push.header.tensor);
  const bool late = is_predecessor(push.header.tensor) && push.header.operation == kDeadlineRecord;
  if (of == nullptr && late) return links_.release(push.buffer);  // its step is closed
  if (of == nullptr)
    return fail(error("D601", "field tensor of a push is " + std::to_string(push.header.tensor)));
  const bool later = !copy && forwards(*of);
  const Status status = later                 ? take_later(*of, push)
                        : is_shard(push.peer) ? on_forwarded(push)
                                              : take(*of, push);
  if (!status.ok())
    return fail(
        status.with_context("job \"" + start_.name + "\", peer " + std::to_string(push.peer)));
  if (later) return;
  links_.release(push.buffer);
  send_answers(*of);
  if (of->plan().mode.deadline_ms > 0) wake_at_ = transport_->now();
}

// After the loss of a shard, its copy may already have applied an agent's first push.
Status PsDataJob::take(ShardTensor& of, const DeferredPush& push) {
  const uint32_t chunk = of.chunk_of(push.header);
  if (of.is_backup() && push.peer < start_.agents && of.holds(chunk) &&
      !of.reaches(push.peer, chunk)) {
    const Result<bool> taken = of.fail_over(push.peer, push.header, answers_);
    if (!taken.ok() || taken.value()) return taken.status();
  }
  return of.on_push(push.peer, push.header, links_.payload(push.buffer), transport_->now(),
                    answers_);
}

void PsDataJob::take_deferred() {
  std::vector<DeferredPush> ready;
  std::erase_if(deferred_, [&](const DeferredPush& push) {
    if (must_wait(push)) return false;
    ready.push_back(push);
    return true;
  });
  for (const DeferredPush& push : ready)
    if (broken_.ok()) on_push(push);
}

// ---- answers

void PsDataJob::send_answers(ShardTensor& tensor) {
  const Sent kind = tensor.is_backup() ? kBackupsAnswer : kAnswer;
  for (const ShardAnswer& answer : answers_) {
    if (!tensor.reaches(answer.agent, answer.chunk)) {
      tensor.on_sent(answer);
      continue;
    }
    FrameHeader header = tensor.frame(answer);
    header.job = start_.job;
    header.epoch = start_.epoch;
    Action record{.kind = Action::Kind::kSend, .peer = answer.agent, .chunk = answer.chunk};
    record.buffer = answer.buffer;
    record.bytes = answer.bytes;
    links_.send_data(answer.agent, header, tensor.slice(answer), {{header.tensor, kind}, record});
  }
  answers_.clear();
}

// The tensor whose answers are sent. Another tensor may have replaced it meanwhile.
ShardTensor* PsDataJob::answered(OperationId operation) const {
  const bool backup_replica = operation.index == kBackupsAnswer;
  if (ShardTensor* of =
          backup_replica ? this->backup_replica(operation.tensor) : tensor(operation.tensor);
      of != nullptr)
    return of;
  for (const auto& [id, from] : predecessors_)
    if (from.id == operation.tensor)
      return backup_replica ? from.backup_replica.get() : from.tensor.get();
  GRADBUS_CHECK(false);
  return nullptr;
}

void PsDataJob::on_sent(const TransportEvent& event) {
  if (links_.is_credit_token(event.token)) return;
  const SendRecord sent = links_.take_sent(event.link, event.token);
  const bool ahead = sent.operation.index == kForwardedAhead;
  if (ahead || sent.operation.index == kForwarded) on_forward_sent(sent);
  if (ahead && !ending_ && broken_.ok() && !deferred_.empty()) take_deferred();
  if (sent.operation.index == kReshardedPart && !ending_)
    on_part_sent(sent.action.peer, sent.operation.tensor);
  if (event.code != Code::kOk || !broken_.ok()) return;  // kClosed follows with the reason
  start_.traffic->sent_bytes.fetch_add(sent.action.bytes, std::memory_order_relaxed);
  start_.traffic->of_peer(sent.action.peer).sent_bytes.add(sent.action.bytes);
  ShardAnswer answer;
  answer.agent = sent.action.peer;
  answer.chunk = sent.action.chunk;
  answer.buffer = sent.action.buffer;
  if (ending_ || sent.operation.index > kBackupsAnswer) return;
  answered(sent.operation)->on_sent(answer);
  if (!deferred_.empty()) take_deferred();
}

}  // namespace gradbus
