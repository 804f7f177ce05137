// Moves tensors when the job's shards change. A tensor is registered again under its name, on the
// current shards, while its ranks have nothing in flight. It starts with the state of its
// predecessor. Every shard sends the parts of its old chunks, from their memory, to the shards of
// the new chunks and to their copies. An incomplete chunk answers no push, and an incomplete copy
// confirms none.
//
// Ranks may change the placement again without a round between. A shard then begins the second move
// of a tensor after the first one is complete. Parts of the second move that arrive before wait, as
// for a tensor that is not added yet.
//
// The copy of a lost shard sends its parts. If a shard is lost before it has sent all parts that
// others wait for, the job ends, because the tensor would be incomplete.
#include <algorithm>
#include <bit>
#include <numeric>

#include "common/errors.h"
#include "common/log.h"
#include "data_plane/collectives/frame_check.h"
#include "server/parameter_server/payload_tensor.h"
#include "server/parameter_server/ps_data_job.h"
#include "server/parameter_server/server_optimizer.h"

namespace gradbus {
namespace {

// Frames to one shard that the transport may have: enough to keep a link busy.
constexpr uint32_t kPartsUnderWayMax = 8;

// Equals state_vectors() of the tensor, which may be on other shards.
uint32_t vectors_of(const ShardPlan& plan) {
  return plan.mode.holds_parameters() ? 1 + optimizer_vectors(plan.mode.optimizer)
                                      : (keeps_second_residual(plan) ? 1 : 0);
}

}  // namespace

void PsDataJob::add_shards(const AddShards& command) {
  links_.add_peers(command.addresses);
  deferred_.reserve(links_.buffers_max());
  users_.resize(links_.buffers_max());
  for (const uint32_t shard : command.lost) lose_shard(shard);
}

// From the first tensor of a placement on, snapshots are of that placement. Older files stay until
// the new ones are complete.
void PsDataJob::begin_shard_set(const AddShardTensor& add) {
  if (add.placement <= shard_set_.placement) return;
  const CollectivePlan& plan = add.plan.collective;
  shard_set_ = {add.placement, add.run, 0, {}};
  for (uint32_t place = 0; place < plan.shards; ++place) {
    shard_set_.members.push_back(plan.peer_of_shard(place) - start_.agents);
    if (shard_set_.members.back() == start_.shard) shard_set_.place = place;
  }
  if (lost_snapshots_ != nullptr) lost_snapshots_->abandon();
  lost_snapshots_ = nullptr;
  snapshots_->abandon();
  snapshots_ = std::make_unique<ShardSnapshots>(
      start_.keeper, snapshot_place(shard_set_.place, false), transport_->now());
}

// ---- what goes where

// As a peer: the shard that sends the state of the old chunk.
uint32_t PsDataJob::holder(const ReshardingPlan& before, uint32_t chunk) const {
  CollectivePlan plan;
  plan.agents = start_.agents;
  plan.members = before.members;
  plan.tensor = before.tensor;
  plan.shards = before.shards;
  plan.pattern = before.pattern;
  plan.one_shard = before.one_shard;
  const uint32_t first = plan.shard_of(chunk);
  const uint32_t peer = plan.peer_of_shard(first);
  return links_.dropped(peer) && before.replicas > 1
             ? plan.peer_of_shard(backup_of(first, before.shards))
             : peer;
}

// A tensor without restored state must have had its first round: old_tensor() reports that.
bool PsDataJob::comes_too_early(const ReshardingPlan& before) const {
  const auto still_comes = [](const ShardTensor* of) {
    if (of == nullptr || !of->plan().moved) return false;
    const uint32_t chunks = of->plan().cut().chunks();
    for (uint32_t chunk = 0; chunk < chunks; ++chunk)
      if (of->holds(chunk) && !of->is_set(chunk)) return true;
    return false;
  };
  return still_comes(tensor(before.tensor)) || still_comes(backup_replica(before.tensor));
}

// Each of them may unblock another one.
void PsDataJob::begin_waiting_moves() {
  const auto ready = [&] {
    return std::ranges::find_if(
        waiting_moves_, [&](const ShardPlan& plan) { return !comes_too_early(*plan.moved); });
  };
  for (auto next = ready(); next != waiting_moves_.end() && broken_.ok(); next = ready()) {
    const ShardPlan plan = std::move(*next);
    waiting_moves_.erase(next);
    if (const Status status = begin_move(plan); !status.ok()) fail(status);
  }
}

Status PsDataJob::begin_move(const ShardPlan& plan) {
  const ReshardingPlan& before = *plan.moved;
  if (comes_too_early(before)) {
    waiting_moves_.push_back(plan);
    return {};
  }
  const uint32_t id = plan.collective.tensor;
  Predecessor& from = predecessors_[id];
  from.id = before.tensor;
  from.awaited.resize(links_.peers());
  if (replaced_.size() <= from.id) replaced_.resize(from.id + 1);
  replaced_[from.id] = true;
  if (tensor(from.id) != nullptr) from.tensor = std::move(tensors_[from.id]);
  if (backup_replica(from.id) != nullptr) from.backup_replica = std::move(backups_[from.id]);
  for (ShardTensor* of : {from.tensor.get(), from.backup_replica.get()})
    if (of != nullptr) GRADBUS_RETURN_IF_ERROR(of->begin_to_leave());
  late_credits_.reserve(late_credits_.capacity() + plan.collective.chunks());
  if (parts_.size() < links_.peers()) parts_.resize(links_.peers());
  const ChunkPlan cut = plan.cut();
  for (uint32_t chunk = 0; chunk < cut.chunks() && vectors_of(plan) > 0; ++chunk) {
    const uint64_t first = cut.range(chunk).first;
    const uint64_t elements = cut.range(chunk).elements;
    uint64_t at = first;
    do {
      const auto old = static_cast<uint32_t>(at / before.chunk_elements);
      const uint64_t end = std::min({first + elements, (uint64_t{old} + 1) * before.chunk_elements,
                                     at + kFramePayloadBytesMax / sizeof(float)});
      GRADBUS_RETURN_IF_ERROR(begin_part(plan, from, {id, chunk, old, at, end - at}));
      at = end;
    } while (at < first + elements);
  }
  for (uint32_t peer = start_.agents; peer < parts_.size(); ++peer) send_parts(peer);
  spdlog::info("job \"{}\": tensor \"{}\" moves to {} shards; {} parts go from here, {} come",
               start_.name, plan.name, plan.collective.shards, from.unsent,
               std::accumulate(from.awaited.begin(), from.awaited.end(), 0U));
  take_deferred();
  begin_waiting_moves();
  return {};
}

Status PsDataJob::begin_part(const ShardPlan& plan, Predecessor& from, const ReshardedPart& part) {
  const uint32_t me = start_.agents + start_.shard;
  const uint32_t source = holder(*plan.moved, part.from);
  if (links_.dropped(source))
    return error("P103",
                 "job \"" + start_.name + "\": shard " + std::to_string(source - start_.agents) +
                     " is lost, and with it what " + "tensor \"" + plan.name + "\" held there");
  const uint32_t first = plan.collective.shard_of(part.chunk);
  for (uint32_t copy = 0; copy < std::max(plan.mode.replicas, 1U); ++copy) {
    const uint32_t peer =
        plan.collective.peer_of_shard(copy == 0 ? first : backup_of(first, plan.collective.shards));
    if (source == me && peer == me) {
      GRADBUS_RETURN_IF_ERROR(keep_part(from, part));
    } else if (source == me && !links_.dropped(peer)) {
      GRADBUS_RETURN_IF_ERROR(queue_part(plan, from, part, peer));
    } else if (peer == me) {
      from.awaited[source] += vectors_of(plan);
    }
  }
  return {};
}

Result<const ShardTensor*> PsDataJob::old_tensor(const Predecessor& from, uint32_t chunk) const {
  const bool first = from.tensor != nullptr && from.tensor->holds(chunk);
  const ShardTensor* const old = first ? from.tensor.get() : from.backup_replica.get();
  if (old != nullptr && old->holds(chunk) && old->is_set(chunk)) return old;
  return error("D602", "job \"" + start_.name + "\": tensor " + std::to_string(from.id) +
                           " was moved before its first round had ended");
}

// Moves a part between two tensors of this shard.
Status PsDataJob::keep_part(const Predecessor& from, const ReshardedPart& part) {
  const Result<const ShardTensor*> old = old_tensor(from, part.from);
  if (!old.ok()) return old.status();
  ShardTensor& into = *new_tensor(part.tensor, part.chunk);
  const uint64_t chunk_first = into.plan().cut().range(part.chunk).first;
  const uint64_t old_first = old.value()->plan().cut().range(part.from).first;
  for (uint32_t vector = 0; vector < old.value()->state_vectors(); ++vector)
    place_part(into, part.chunk,
               {vector, part.first - chunk_first,
                old.value()
                    ->state_values(part.from, vector)
                    .subspan(part.first - old_first, part.elements),
                old.value()->chunk_state(part.from)});
  return {};
}

Status PsDataJob::queue_part(const ShardPlan& plan, Predecessor& from, const ReshardedPart& part,
                             uint32_t peer) {
  const Result<const ShardTensor*> old = old_tensor(from, part.from);
  if (!old.ok()) return old.status();
  PartsToSend& to = parts_[peer];
  if (!to.expected) GRADBUS_RETURN_IF_ERROR(links_.expect_sends(peer, kPartsUnderWayMax));
  to.expected = true;
  to.parts.push_back(part);
  from.unsent += vectors_of(plan);
  return {};
}

// ---- sending parts

void PsDataJob::send_parts(uint32_t peer) {
  PartsToSend& to = parts_[peer];
  for (; !to.parts.empty() && to.under_way < kPartsUnderWayMax; ++to.under_way) {
    const ReshardedPart& part = to.parts.front();
    const ShardTensor& old = *old_tensor(predecessors_.at(part.tensor), part.from).value();
    const uint64_t old_first = old.plan().cut().range(part.from).first;
    const ShardChunkState kept = old.chunk_state(part.from);
    const Slice slice =
        old.state_slice(part.from, to.vector, part.first - old_first, part.elements);
    FrameHeader header = old.ShardTensor::frame({.chunk = part.chunk, .round = kept.steps});
    header.kind = static_cast<uint8_t>(FrameKind::kMoved);
    header.operation = static_cast<uint16_t>(to.vector);
    header.source = std::bit_cast<uint32_t>(kept.learning_rate);
    header.tensor = part.tensor;
    header.length = static_cast<uint32_t>(slice.bytes);
    header.total = part.first;
    header.job = start_.job;
    header.epoch = start_.epoch;
    Action record{.kind = Action::Kind::kSend, .peer = peer, .chunk = part.chunk};
    record.bytes = slice.bytes;
    links_.send_data(peer, header, slice, {{part.tensor, kReshardedPart}, record});
    if (++to.vector < old.state_vectors()) continue;
    to.vector = 0;
    to.parts.pop_front();
  }
}

void PsDataJob::on_part_sent(uint32_t peer, uint32_t tensor) {
  --parts_[peer].under_way;
  --predecessors_.at(tensor).unsent;
  if (!links_.dropped(peer)) send_parts(peer);
}

// ---- receiving parts

ShardTensor* PsDataJob::new_tensor(uint32_t id, uint32_t chunk) const {
  for (ShardTensor* of : {tensor(id), backup_replica(id)})
    if (of != nullptr && of->holds(chunk)) return of;
  return nullptr;
}

Status PsDataJob::on_moved(const DeferredPush& push) {
  const FrameHeader& header = push.header;
  if (!predecessors_.contains(header.tensor))
    return refuse_frame(header, "a part of a tensor that does not move");
  Predecessor& from = predecessors_.at(header.tensor);
  ShardTensor* const into = new_tensor(header.tensor, header.chunk);
  const bool is_awaited = push.peer < from.awaited.size() && from.awaited[push.peer] > 0;
  if (!is_shard(push.peer) || into == nullptr || !is_awaited ||
      header.operation >= into->state_vectors())
    return refuse_frame(header, "a part of a tensor that is not to come from there");
  const uint64_t first = into->plan().cut().range(header.chunk).first;
  const uint64_t elements = into->plan().cut().range(header.chunk).elements;
  const uint64_t length = header.length / sizeof(float);
  if (header.length % sizeof(float) != 0 || header.total < first || length > elements ||
      header.total - first > elements - length)
    return refuse_frame(header, "a part that is not inside its chunk");
  --from.awaited[push.peer];
  const std::span<const std::byte> payload = links_.payload(push.buffer);
  const auto* const values = reinterpret_cast<const float*>(payload.data());
  const ShardChunkState of{header.step, std::bit_cast<float>(header.source)};
  place_part(*into, header.chunk,
             {header.operation, header.total - first, std::span(values, length), of});
  begin_waiting_moves();
  return {};
}

void PsDataJob::place_part(ShardTensor& into, uint32_t chunk, const ShardChunkPart& part) {
  if (!into.take_state(chunk, part, answers_)) return;
  send_answers(into);
  if (!into.is_backup()) return;
  std::erase_if(late_credits_, [&](const LateCredit& credit) {
    const bool now =
        credit.header.tensor == into.plan().collective.tensor && credit.header.chunk == chunk;
    if (now) links_.send_credit(credit.peer, credit.header);
    return now;
  });
}

// ---- the end

void PsDataJob::lose_moves(uint32_t peer) {
  for (const auto& [id, from] : predecessors_) {
    if (peer >= from.awaited.size() || from.awaited[peer] == 0) continue;
    fail(error("P103", "job \"" + start_.name + "\": shard " +
                           std::to_string(peer - start_.agents) +
                           " was lost while its state was being sent to other shards"));
  }
  if (peer >= parts_.size()) return;
  PartsToSend& to = parts_[peer];
  for (; !to.parts.empty(); to.parts.pop_front(), to.vector = 0) {
    Predecessor& from = predecessors_.at(to.parts.front().tensor);
    const ShardTensor& old = *old_tensor(from, to.parts.front().from).value();
    from.unsent -= old.state_vectors() - to.vector;
  }
}

bool PsDataJob::is_predecessor(uint32_t id) const { return id < replaced_.size() && replaced_[id]; }

void PsDataJob::forget_predecessors() {
  const auto unused = [](const std::unique_ptr<ShardTensor>& tensor) {
    return tensor == nullptr || !tensor->sends();
  };
  std::erase_if(predecessors_, [&](const auto& entry) {
    const Predecessor& from = entry.second;
    return from.unsent == 0 && unused(from.tensor) && unused(from.backup_replica) &&
           std::ranges::all_of(from.awaited, [](uint32_t parts) { return parts == 0; });
  });
}

}  // namespace gradbus
