#include "worker_agent/engine_tensor.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "common/errors.h"
#include "common/kernels/reduce.h"

namespace gradbus {
namespace {

std::unique_ptr<Collective> collective_of(const StartJob& job, const AddTensor& add) {
  if (job.agents < 2) return nullptr;
  CollectivePlan plan;
  plan.kind = add.shape.kind;
  plan.algorithm = add.algorithm;
  plan.dtype = add.shape.dtype;
  plan.op = add.op;
  plan.count = add.shape.count;
  plan.chunk_elements = add.shape.chunk_elements;
  plan.row_elements = add.shape.row_elements;
  plan.root = add.root;
  plan.agent_index = job.agent_index;
  plan.agent_of_rank = job.agent_of_rank;
  plan.agents = job.agents;
  return make_collective(plan);
}

}  // namespace

EngineTensor::EngineTensor(const StartJob& job, AddTensor add, RegionId region)
    : add_(std::move(add)),
      region_(region),
      cell_(add_.segment->at(add_.placement.cell_offset),
            add_.segment->at(add_.placement.data_offset), add_.shape),
      collective_(collective_of(job, add_)),
      posted_(job.local_ranks.size()),
      local_ranks_(job.local_ranks),
      block_bytes_(job.agent_of_rank.size()),
      area_pointers_(add_.shape.local_size),
      reported_(add_.shape.chunks) {
  if (collective_ != nullptr)
    stash_ =
        std::make_unique_for_overwrite<std::byte[]>(collective_->needs().stash_slots * bytes());
}

uint64_t EngineTensor::bytes() const { return add_.shape.count * dtype_bytes(add_.shape.dtype); }

Status EngineTensor::post(uint32_t local_rank, uint64_t round, uint64_t block_bytes) {
  // An honest client posts only after it was told that the last round is over.
  if (round != posted_[local_rank] + 1 || round != begun_ + 1 || collective_->active_round() != 0)
    return error("S210", "field round of a submission is " + std::to_string(round) + ", expected " +
                             std::to_string(begun_ + 1) + ", tensor \"" + name() + "\"");
  if (block_bytes > bytes() || block_bytes % dtype_bytes(add_.shape.dtype) != 0)
    return error("S210", "field bytes of a submission is " + std::to_string(block_bytes) +
                             ", tensor \"" + name() + "\" holds at most " +
                             std::to_string(bytes()) + " in whole elements");
  posted_[local_rank] = round;
  block_bytes_[local_ranks_[local_rank]] = block_bytes;
  return {};
}

uint64_t EngineTensor::ready_round() const {
  const uint64_t next = begun_ + 1;
  const auto posted = [&](uint64_t round) { return round == next; };
  return std::all_of(posted_.begin(), posted_.end(), posted) ? next : 0;
}

int64_t EngineTensor::reduce_some() {
  const bool alone = add_.shape.local_size == 1 && add_.shape.reduction.copies();
  if (!alone && !cell_.chunk_reduced(reported_, begun_)) {
    cell_.help(begun_, kAgentWorker, 1);
    if (!cell_.chunk_reduced(reported_, begun_)) return -1;
  }
  return reported_++;
}

uint64_t EngineTensor::chunk_offset(uint32_t chunk) const {
  const uint64_t first =
      reduces() ? add_.shape.chunk_plan().range(chunk).first : chunk * add_.shape.chunk_elements;
  return first * dtype_bytes(add_.shape.dtype);
}

uint64_t EngineTensor::chunk_elements(uint32_t chunk) const {
  return add_.shape.chunk_plan().range(chunk).elements;
}

std::span<std::byte* const> EngineTensor::areas(uint32_t chunk) {
  for (uint32_t rank = 0; rank < add_.shape.local_size; ++rank)
    area_pointers_[rank] = cell_.area(rank) + chunk_offset(chunk);
  return area_pointers_;
}

// Who gets the result on this node.
std::span<std::byte* const> EngineTensor::result_areas(uint32_t chunk) {
  const std::span<std::byte* const> all = areas(chunk);
  if (add_.shape.kind == CollectiveKind::kAllReduce) return all;
  const uint32_t rank = add_.shape.kind == CollectiveKind::kReduce
                            ? add_.root
                            : add_.shape.chunk_plan().range(chunk).shard;
  const auto local = std::find(local_ranks_.begin(), local_ranks_.end(), rank);
  GRADBUS_CHECK(local != local_ranks_.end());
  return all.subspan(static_cast<size_t>(local - local_ranks_.begin()), 1);
}

FrameHeader EngineTensor::frame(const StartJob& job, const Action& send) const {
  FrameHeader header;
  header.kind = static_cast<uint8_t>(send.frame);
  header.dtype = static_cast<uint8_t>(add_.shape.dtype);
  header.op = static_cast<uint8_t>(add_.op);
  header.collective = static_cast<uint8_t>(add_.shape.kind);
  header.source = send.source;
  header.job = job.job;
  header.epoch = job.epoch;
  header.tensor = add_.tensor;
  header.step = send.round;
  header.chunk = send.chunk;
  header.length = static_cast<uint32_t>(send.bytes);
  header.total = send.total;
  return header;
}

Slice EngineTensor::slice(const Action& send) const {
  const uint64_t block = reduces() ? 0 : send.source;
  return {
      region_,
      add_.placement.data_offset + block * add_.placement.data_stride + chunk_offset(send.chunk),
      send.bytes};
}

void EngineTensor::stash(uint32_t slot, std::span<const std::byte> payload) {
  if (!payload.empty()) std::memcpy(&stash_[slot * bytes()], payload.data(), payload.size());
}

std::span<const std::byte> EngineTensor::stashed(const Action& action) const {
  return {&stash_[action.slot * bytes()], action.bytes};
}

void EngineTensor::accumulate(const Action& action, std::span<const std::byte> payload) {
  const std::span<std::byte* const> target = areas(action.chunk).first(1);
  const std::byte* const sources[] = {action.payload_first ? payload.data() : target[0],
                                      action.payload_first ? target[0] : payload.data()};
  reduce(add_.shape.dtype, Reduction{.op = add_.last.op}, sources, target,
         chunk_elements(action.chunk));
}

void EngineTensor::finalize(uint32_t chunk) {
  const std::byte* const source[] = {areas(chunk)[0]};
  const std::span<std::byte* const> targets = result_areas(chunk);
  if (add_.last.copies() && targets.size() == 1 && targets[0] == source[0]) return;
  reduce(add_.shape.dtype, add_.last, source, targets, chunk_elements(chunk));
}

void EngineTensor::deliver(const Action& action, std::span<const std::byte> payload) {
  if (payload.empty()) return;
  if (reduces()) {
    for (std::byte* target : areas(action.chunk))
      std::memcpy(target, payload.data(), payload.size());
    return;
  }
  std::memcpy(cell_.area(action.source) + chunk_offset(action.chunk), payload.data(),
              payload.size());
}

}  // namespace gradbus
