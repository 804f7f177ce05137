// The copies of a shard: it forwards pushes to its backup, keeps the copies of the shard before it,
// and continues when one of them is lost.
#include <algorithm>

#include "common/errors.h"
#include "common/log.h"
#include "data_plane/collectives/frame_check.h"
#include "server/parameter_server/ps_data_job.h"

namespace gradbus {

// For a tensor of this shard: room for forwarded pushes. For a copy: room for confirmations.
Status PsDataJob::open_copies(const ShardTensor& tensor) {
  const uint32_t id = tensor.plan().collective.tensor;
  const auto chunks = static_cast<uint32_t>(tensor.chunks_stored());
  if (tensor.is_backup()) {
    links_.expect_credits(copied(tensor), chunks);
    return {};
  }
  // Each agent has one push before an answer, and each push may open a step with a deadline.
  const bool deadlines = tensor.plan().mode.deadline_ms > 0;
  const size_t untaken_max = start_.agents + (deadlines ? start_.agents + 2 : 0);
  if (untaken_.size() <= id) untaken_.resize(id + 1);
  untaken_[id].resize(tensor.plan().collective.chunks());
  // Room for frames ahead of a push, besides one per chunk. A push has at most as many frames as an
  // answer.
  const auto ahead = static_cast<uint32_t>(tensor.answers_max()) - chunks;
  for (uint32_t chunk = 0; chunk < untaken_[id].size(); ++chunk) {
    if (!tensor.holds(chunk)) continue;
    untaken_[id][chunk].pushes.reserve(untaken_max);
    if (ahead > 0) untaken_[id][chunk].ahead.resize(start_.agents);
  }
  users_.resize(links_.buffers_max());
  return links_.expect_sends(backup(tensor), chunks + start_.agents * ahead);
}

// ---- as the owner of a chunk

bool PsDataJob::forwards(const ShardTensor& tensor) const {
  return tensor.plan().mode.replicas > 1 && !tensor.is_backup() && !links_.dropped(backup(tensor));
}

// Of an incomplete push, the backup gets the frames that are here.
Status PsDataJob::take_later(ShardTensor& of, const DeferredPush& push) {
  const Result<bool> whole = of.admit(push.peer, push.header, links_.payload(push.buffer));
  if (!whole.ok()) return whole.status();
  whole.value() ? put(of, of.chunk_of(push.header), push) : forward_ahead(of, push);
  return {};
}

// Adds one push or deadline of the chunk.
void PsDataJob::put(ShardTensor& tensor, uint32_t chunk, const DeferredPush& push) {
  untaken_[tensor.plan().collective.tensor][chunk].pushes.push(push);
  forward_next(tensor, chunk);
}

void PsDataJob::forward_next(const ShardTensor& tensor, uint32_t chunk) {
  const uint32_t id = tensor.plan().collective.tensor;
  Untaken& untaken = untaken_[id][chunk];
  if (untaken.pushes.empty() || untaken.asked || untaken.posted || !forwards(tensor)) return;
  untaken.asked = untaken.posted = true;
  const DeferredPush& push = untaken.pushes.front();
  if (push.buffer != kNoBuffer) users_[push.buffer] = 2;  // the transport and this shard
  forward(tensor, chunk, push, kForwarded);
}

void PsDataJob::forward_ahead(const ShardTensor& tensor, const DeferredPush& push) {
  const uint32_t chunk = tensor.chunk_of(push.header);
  Ahead& ahead = untaken_[tensor.plan().collective.tensor][chunk].ahead[push.peer];
  ahead = {push.header.step, ahead.frames + 1};
  users_[push.buffer] = 1;
  forward(tensor, chunk, push, kForwardedAhead);
}

// Earlier frames of the agent's push have arrived, but the transport has not released them yet.
// There is room for one push only.
bool PsDataJob::is_still_ahead(const ShardTensor& tensor, const DeferredPush& push) const {
  const uint32_t id = tensor.plan().collective.tensor;
  const uint32_t chunk = tensor.chunk_of(push.header);
  if (id >= untaken_.size() || chunk >= untaken_[id].size()) return false;
  const std::vector<Ahead>& ahead = untaken_[id][chunk].ahead;
  return push.peer < ahead.size() && ahead[push.peer].frames > 0 &&
         ahead[push.peer].round != push.header.step;
}

void PsDataJob::forward(const ShardTensor& tensor, uint32_t chunk, const DeferredPush& push,
                        Sent as) {
  const uint32_t id = tensor.plan().collective.tensor;
  const bool deadline = push.buffer == kNoBuffer;
  FrameHeader header = push.header;
  header.kind = static_cast<uint8_t>(FrameKind::kForward);
  header.total |= uint64_t{header.operation} << kForwardedExchangeShift;
  header.operation = deadline ? kDeadlineRecord : static_cast<uint16_t>(push.peer);
  header.job = start_.job;
  header.epoch = start_.epoch;
  Action record{.kind = Action::Kind::kSend, .peer = backup(tensor), .chunk = chunk};
  record.source = push.peer;
  record.buffer = push.buffer;
  record.bytes = header.length;
  links_.send_data(backup(tensor), header, deadline ? Slice() : links_.payload_slice(push.buffer),
                   {{id, as}, record});
}

void PsDataJob::on_forward_sent(const SendRecord& sent) {
  const uint32_t id = sent.operation.tensor;
  Untaken& untaken = untaken_[id][sent.action.chunk];
  let_go(sent.action.buffer);
  if (sent.operation.index == kForwardedAhead) {
    --untaken.ahead[sent.action.source].frames;
    return;
  }
  untaken.posted = false;
  if (!ending_ && broken_.ok() && tensor(id) != nullptr)
    forward_next(*tensors_[id], sent.action.chunk);
}

void PsDataJob::let_go(uint32_t buffer) {
  if (buffer == kNoBuffer) return;
  if (users_[buffer] > 0 && --users_[buffer] > 0) return;
  links_.release(buffer);
}

void PsDataJob::on_taken_there(uint32_t peer, const FrameHeader& header) {
  if (is_predecessor(header.tensor) || is_retired(header.tensor))
    return;  // a deadline of a closed step
  ShardTensor* const of = tensor(header.tensor);
  const bool ours = of != nullptr && peer == backup(*of) && forwards(*of) &&
                    of->holds(header.chunk) && header.tensor < untaken_.size() &&
                    untaken_[header.tensor][header.chunk].asked;
  if (!ours) return fail(error("D601", "a shard confirmed a push that was not sent to it"));
  Untaken& untaken = untaken_[header.tensor][header.chunk];
  const DeferredPush& front = untaken.pushes.front();
  const uint32_t agent = front.buffer == kNoBuffer ? kDeadlineRecord : front.peer;
  Status status = expect_field(header, "operation", header.operation, agent);
  if (status.ok()) status = expect_field(header, "step", header.step, front.header.step);
  if (!status.ok()) return fail(status);
  untaken.asked = false;
  take_first(*of, header.chunk);
  forward_next(*of, header.chunk);
}

void PsDataJob::take_first(ShardTensor& tensor, uint32_t chunk) {
  BoundedQueue<DeferredPush>& pushes = untaken_[tensor.plan().collective.tensor][chunk].pushes;
  const DeferredPush push = pushes.front();
  pushes.pop();
  if (push.buffer == kNoBuffer) {
    tensor.on_deadline(chunk, push.header.step, answers_);
  } else {
    tensor.take_admitted(push.peer, push.header, links_.payload(push.buffer), transport_->now(),
                         answers_);
    let_go(push.buffer);
  }
  send_answers(tensor);
  if (tensor.plan().mode.deadline_ms > 0) wake_at_ = transport_->now();
}

// ---- as a backup

// Whether the push is for a copy: its chunk belongs to the shard before this one.
bool PsDataJob::is_of_backup(const DeferredPush& push) const {
  const ShardTensor* of = tensor(push.header.tensor);
  if (of == nullptr || of->plan().mode.replicas < 2) return false;
  const CollectivePlan& plan = of->plan().collective;
  const uint32_t chunk = of->chunk_of(push.header);
  return chunk < plan.chunks() &&
         plan.shard_of(chunk) == backed_up_by(of->plan().shard, plan.shards);
}

Status PsDataJob::on_forwarded(const DeferredPush& push) {
  FrameHeader header = push.header;
  ShardTensor* const of = backup_replica(header.tensor);
  const bool deadline = header.operation == kDeadlineRecord;
  header.kind = static_cast<uint8_t>(FrameKind::kReduce);
  header.operation = static_cast<uint16_t>(header.total >> kForwardedExchangeShift);
  header.total &= (uint64_t{1} << kForwardedExchangeShift) - 1;
  const uint32_t chunk = of == nullptr || deadline ? header.chunk : of->chunk_of(header);
  if (of == nullptr || push.peer != copied(*of) || !of->holds(chunk))
    return refuse_frame(header, "a push of a chunk that has no copy here");
  if (deadline) {
    of->on_deadline(chunk, header.step, answers_);
  } else {
    GRADBUS_RETURN_IF_ERROR(of->on_push(push.header.operation, header, links_.payload(push.buffer),
                                        transport_->now(), answers_));
    if (!of->has_taken(push.header.operation, header)) return {};
  }
  FrameHeader taken = push.header;
  taken.kind = static_cast<uint8_t>(FrameKind::kCredit);
  taken.source = start_.agents + start_.shard;
  taken.chunk = chunk;
  taken.length = 0;
  taken.payload_crc = 0;
  if (!of->is_set(chunk) && of->plan().moved) {
    late_credits_.push_back({push.peer, taken});  // until the chunk is here
  } else {
    links_.send_credit(push.peer, taken);
  }
  return {};
}

// ---- when a shard is lost

void PsDataJob::lose_shard(uint32_t shard) {
  const uint32_t peer = start_.agents + shard;
  if (peer >= links_.peers() || shard == start_.shard || links_.dropped(peer)) return;
  ended_links_.forget(peer);
  links_.drop(peer);
  SendRecord unsent;
  while (links_.take_unsent(peer, unsent))
    unsent.operation.index == kReshardedPart ? on_part_sent(peer, unsent.operation.tensor)
                                             : on_forward_sent(unsent);
  if (backs_up(peer)) go_on_alone(peer);
  if (is_copied(peer) && !links_.receives_from(peer)) promote(peer);
  lose_moves(peer);
}

// Whether this peer has copies of a tensor of this shard.
bool PsDataJob::backs_up(uint32_t peer) const {
  return std::ranges::any_of(tensors_, [&](const auto& tensor) {
    return tensor != nullptr && tensor->plan().mode.replicas > 1 && backup(*tensor) == peer;
  });
}

// Whether this shard has copies of a tensor of that peer.
bool PsDataJob::is_copied(uint32_t peer) const {
  return std::ranges::any_of(backups_, [&](const auto& backup_replica) {
    return backup_replica != nullptr && copied(*backup_replica) == peer;
  });
}

void PsDataJob::go_on_alone(uint32_t peer) {
  spdlog::warn(
      "job \"{}\": shard {}, the backup of shard {}, is lost; what shard {} holds has one "
      "copy now",
      start_.name, peer - start_.agents, start_.shard, start_.shard);
  for (uint32_t id = 0; id < untaken_.size(); ++id) {
    if (tensor(id) == nullptr || backup(*tensors_[id]) != peer) continue;
    for (uint32_t chunk = 0; chunk < untaken_[id].size(); ++chunk)
      while (!untaken_[id][chunk].pushes.empty()) take_first(*tensors_[id], chunk);
  }
  take_deferred();
}

// The lost shard's link has ended, so all of its frames have arrived.
bool PsDataJob::answers(const ShardTensor& backup_replica) const {
  const uint32_t peer = copied(backup_replica);
  return links_.dropped(peer) && !links_.receives_from(peer);
}

void PsDataJob::promote(uint32_t peer) {
  const uint32_t lost = peer - start_.agents;
  spdlog::warn(
      "job \"{}\": shard {} is lost; shard {} goes on with its copy of what that held, the "
      "only one now",
      start_.name, lost, start_.shard);
  wake_at_ = transport_->now();
  const auto member = std::ranges::find(shard_set_.members, lost);
  if (member != shard_set_.members.end()) {
    const auto place = static_cast<uint32_t>(member - shard_set_.members.begin());
    lost_snapshots_ =
        std::make_unique<ShardSnapshots>(start_.keeper, snapshot_place(place, true), wake_at_);
  }
  take_deferred();
}

}  // namespace gradbus
