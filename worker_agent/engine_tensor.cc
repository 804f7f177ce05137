#include "worker_agent/engine_tensor.h"

#include <algorithm>
#include <cstring>

#include "common/errors.h"
#include "common/kernels/reduce.h"

namespace gradbus {
namespace {

std::unique_ptr<Collective> collective_of(const StartJob& job, const AddTensor& add) {
  if (job.agents < 2) return nullptr;
  CollectivePlan plan;
  plan.kind = add.shape.kind;
  plan.dtype = add.shape.dtype;
  plan.op = add.op;
  plan.count = add.shape.count;
  plan.chunk_elements = add.shape.chunk_elements;
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
      divisor_(add_.op == ReduceOp::kAverage ? static_cast<uint32_t>(job.agent_of_rank.size()) : 1),
      posted_(job.local_ranks.size()),
      local_ranks_(job.local_ranks),
      block_bytes_(job.agent_of_rank.size()),
      area_pointers_(add_.shape.local_size),
      reported_(add_.shape.chunks) {}

Status EngineTensor::post(uint32_t local_rank, uint64_t round, uint64_t bytes) {
  // An honest client posts only after it was told that the last round is over.
  if (round != posted_[local_rank] + 1 || round != begun_ + 1 || collective_->active_round() != 0)
    return error("S210", "field round of a submission is " + std::to_string(round) + ", expected " +
                             std::to_string(begun_ + 1) + ", tensor \"" + name() + "\"");
  const size_t element = dtype_bytes(add_.shape.dtype);
  if (bytes > add_.shape.count * element || bytes % element != 0)
    return error("S210", "field bytes of a submission is " + std::to_string(bytes) + ", tensor \"" +
                             name() + "\" holds at most " +
                             std::to_string(add_.shape.count * element) + " in whole elements");
  posted_[local_rank] = round;
  block_bytes_[local_ranks_[local_rank]] = bytes;
  return {};
}

uint64_t EngineTensor::ready_round() const {
  const uint64_t next = begun_ + 1;
  const auto posted = [&](uint64_t round) { return round == next; };
  return std::all_of(posted_.begin(), posted_.end(), posted) ? next : 0;
}

int64_t EngineTensor::reduce_some() {
  if (add_.shape.local_size > 1 && !cell_.chunk_reduced(reported_, begun_)) {
    cell_.help(begun_, kAgentWorker, 1);
    if (!cell_.chunk_reduced(reported_, begun_)) return -1;
  }
  return reported_++;
}

uint64_t EngineTensor::chunk_offset(uint32_t chunk) const {
  return chunk * add_.shape.chunk_elements * dtype_bytes(add_.shape.dtype);
}

uint64_t EngineTensor::chunk_elements(uint32_t chunk) const {
  const uint64_t first = chunk * add_.shape.chunk_elements;
  return std::min(add_.shape.chunk_elements, add_.shape.count - std::min(first, add_.shape.count));
}

std::span<std::byte* const> EngineTensor::areas(uint32_t chunk) {
  for (uint32_t rank = 0; rank < add_.shape.local_size; ++rank)
    area_pointers_[rank] = cell_.area(rank) + chunk_offset(chunk);
  return area_pointers_;
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
  const uint64_t block = add_.shape.kind == CollectiveKind::kAllGather ? send.source : 0;
  return {
      region_,
      add_.placement.data_offset + block * add_.placement.data_stride + chunk_offset(send.chunk),
      send.bytes};
}

void EngineTensor::accumulate(uint32_t chunk, std::span<const std::byte> payload) {
  std::byte* target = areas(chunk)[0];
  const std::byte* const sources[] = {target, payload.data()};
  reduce(add_.shape.dtype, sources, areas(chunk).first(1), chunk_elements(chunk), 1);
}

void EngineTensor::finalize(uint32_t chunk) {
  const std::span<std::byte* const> targets = areas(chunk);
  if (divisor_ == 1 && targets.size() == 1) return;
  const std::byte* const source[] = {targets[0]};
  reduce(add_.shape.dtype, source, targets, chunk_elements(chunk), divisor_);
}

void EngineTensor::deliver(const Action& action, std::span<const std::byte> payload) {
  if (payload.empty()) return;
  if (all_reduce()) {
    for (std::byte* target : areas(action.chunk))
      std::memcpy(target, payload.data(), payload.size());
    return;
  }
  const uint32_t block = add_.shape.kind == CollectiveKind::kAllGather ? action.source : 0;
  std::memcpy(cell_.area(block) + chunk_offset(action.chunk), payload.data(), payload.size());
}

}  // namespace gradbus
