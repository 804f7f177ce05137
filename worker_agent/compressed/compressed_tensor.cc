#include "worker_agent/compressed/compressed_tensor.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/check.h"
#include "common/checked.h"
#include "common/errors.h"
#include "compression/kernels/vector/compensate.h"
#include "worker_agent/compressed/device_partitions.h"
#include "worker_agent/compressed/partitions.h"

namespace gradbus {
namespace {

// Part 0 of the shards' state is the parameters.
PsRequest pull_of(const RoundRequest& request) {
  if (!request.pull_only) return PsRequest::kNone;
  if (writes_optimizer_state(request.pull_source)) return PsRequest::kWrite;
  const bool reads =
      reads_optimizer_state(request.pull_source) && optimizer_state_part(request.pull_source) > 0;
  return reads ? PsRequest::kRead : PsRequest::kParameters;
}

// Of the sum of payloads. A node has one vote, whatever the number of its ranks.
float scale_of(const Reduction& last, const CompressionSpec& spec, uint32_t agents) {
  const bool averages = last.divisor != 1;
  const uint32_t divisor = averages && spec.codec->traits.votes ? agents : last.divisor;
  return static_cast<float>(last.postscale / divisor);
}

}  // namespace

Result<std::unique_ptr<CompressedTensor>> CompressedTensor::create(const StartJob& job,
                                                                   const AddTensor& add,
                                                                   std::vector<float*> rank_buffers,
                                                                   RoundTrace& trace,
                                                                   Transport& transport) {
  std::unique_ptr<CompressedTensor> tensor(
      new CompressedTensor(job, add, std::move(rank_buffers), trace, transport));
  if (Status status = tensor->open(add.plan.id); !status.ok()) return status;
  return tensor;
}

CompressedTensor::CompressedTensor(const StartJob& job, const AddTensor& add,
                                   std::vector<float*> rank_buffers, RoundTrace& trace,
                                   Transport& transport)
    : job_(job),
      add_(add),
      compression_(add_.plan.compression()),
      rank_buffers_(std::move(rank_buffers)),
      trace_(trace),
      refuses_not_finite_(compression_.spec.options.text("nan") == "stop"),
      staging_(transport) {
  const uint64_t partition = compression_.partition_elements;
  const uint64_t count = add_.shape.count;
  GRADBUS_CHECK(count > 0 && partition > 0 &&
                (partition >= count || partition % add_.shape.chunk_elements == 0));
  for (uint32_t index = 0; index * partition < count; ++index)
    partitions_.push_back(add_.gpu() == nullptr ? make_partition(partition_plan(index))
                                                : make_device_partition(partition_plan(index),
                                                                        *add_.gpu()->partitions));
  stages_ = partitions_.front()->stages().size();
  waiting_.reserve(partitions_.size());
  // A node that is alone with its shards has no dense sum to compare with.
  const auto every = compression_.spec.options.number("fidelity");
  if (every > 0 && job.agents > 1 && !add.plan.mode.holds_parameters())
    gauge_ = std::make_unique<FidelityGauge>(partition_plan(0), static_cast<uint64_t>(every));
}

CompressedTensor::~CompressedTensor() = default;

PartitionPlan CompressedTensor::partition_plan(uint32_t index) const {
  PartitionPlan plan;
  plan.spec = compression_.spec;
  plan.communicator = compression_.communicator;
  plan.shape = partition_shape(compression_, add_.shape.count, index);
  plan.count = plan.shape.count_max;
  plan.index = index;
  plan.tensor_seed = tensor_seed(job_.job, add_.plan.id);
  plan.agent_index = job_.agent_index;
  plan.agents = job_.agents;
  if (const PsPlan* const ps = add_.plan.ps(); ps != nullptr) {
    plan.shards = ps->shards.shards;
    plan.replicas = ps->replicas;
    plan.pattern = ps->shards.pattern;
    plan.members = ps->shards.members;
  }
  plan.parameters = add_.plan.mode.holds_parameters();
  plan.tensor = add_.plan.id;
  plan.algorithm = add_.plan.algorithm();
  plan.scale = scale_of(add_.last, plan.spec, job_.agents);
  for (float* const rank_buffer : rank_buffers_)
    plan.rank_buffers.push_back(rank_buffer + index * compression_.partition_elements);
  return plan;
}

uint64_t CompressedTensor::staging_bytes() const {
  uint64_t bytes = gauge_ == nullptr ? 0 : gauge_->stage().bytes;
  for (const auto& partition : partitions_)
    for (const Stage& stage : partition->stages()) bytes = checked_sum(bytes, stage.bytes);
  return bytes;
}

Status CompressedTensor::open(uint32_t tensor) {
  const std::string what = "the payloads of tensor \"" + add_.plan.spec.name + "\"";
  GRADBUS_RETURN_IF_ERROR(add_.gpu() == nullptr
                              ? staging_.map(staging_bytes(), what)
                              : staging_.borrow(add_.gpu()->partitions->payloads()));
  GRADBUS_CHECK(staging_.bytes().size() >= staging_bytes());
  std::span<std::byte> rest = staging_.bytes();
  for (const auto& partition : partitions_) {
    for (size_t s = 0; s < stages_; ++s) {
      const Stage& stage = partition->stages()[s];
      open_operation(tensor, stage, rest.first(stage.bytes));
      partition->attach(s, operations_.back().get(), rest.first(stage.bytes));
      rest = rest.subspan(stage.bytes);
    }
  }
  if (gauge_ == nullptr) return {};
  open_operation(tensor, gauge_->stage(), rest);
  gauge_->attach(rest);
  return {};
}

void CompressedTensor::open_operation(uint32_t tensor, const Stage& stage,
                                      std::span<std::byte> memory) {
  const auto offset = static_cast<uint64_t>(memory.data() - staging_.bytes().data());
  const auto index = static_cast<uint16_t>(operations_.size());
  operations_.push_back(std::make_unique<CollectiveOperation>(
      OperationId{tensor, index}, stage.plan,
      OperationBuffers{staging_.region(), offset, memory.data(), stage.stride},
      std::vector<uint32_t>{job_.agent_index}, Reduction{.op = ReduceOp::kSum}));
}

std::span<float> CompressedTensor::first_rank_buffer(size_t partition) const {
  const uint64_t partition_elements = compression_.partition_elements;
  const uint64_t first = partition * partition_elements;
  return {rank_buffers_[0] + first, std::min(partition_elements, add_.shape.count - first)};
}

// ---- a round

Status CompressedTensor::begin(const RoundInput& input, OperationQueue&) {
  GRADBUS_CHECK(done());
  const RoundRequest& request = input.request;
  request_ = request;
  chunks_reduced_ = 0;
  open_ = partitions_.size();
  measured_ = false;
  const bool exchanges = request.kind == SubmissionKind::kPosted;
  if (exchanges) {
    ++round_;
    if (request.warm_up_round > 0) rounds_before_ = request.warm_up_round - round_;
    measured_partition_ =
        gauge_ == nullptr ? partitions_.size() : gauge_->partition_of(round_, partitions_.size());
    if (measured_partition_ < partitions_.size()) ++open_;
  }
  const bool scales = exchanges && request.residual_scale != 1;
  for (const auto& partition : partitions_) {
    if (scales) GRADBUS_RETURN_IF_ERROR(partition->scale_residual_state(request.residual_scale));
    partition->count_as_made(rounds_before_);
    GRADBUS_RETURN_IF_ERROR(partition->prepare(round_, exchanges));
  }
  return {};
}

Status CompressedTensor::chunk_summed(uint32_t, OperationQueue& next) {
  const TracedWork encoding(traced(), TraceKind::kEncode);
  return chunk_summed(next);
}

Status CompressedTensor::chunk_summed(OperationQueue& next) {
  ++chunks_reduced_;
  const uint64_t elements = std::min(chunks_reduced_ * add_.shape.chunk_elements, add_.shape.count);
  const uint64_t partition_elements = compression_.partition_elements;
  if (request_.kind != SubmissionKind::kPosted) {
    return elements == add_.shape.count ? take_turn_with_residual_state() : Status();
  }
  if (elements % partition_elements != 0 && elements != add_.shape.count) return {};
  const size_t partition = (elements - 1) / partition_elements;
  if (refuses_not_finite_ && !request_.pull_only)
    GRADBUS_RETURN_IF_ERROR(refuse_not_finite(partition));
  start(partition, next);
  return {};
}

void CompressedTensor::start(size_t partition, OperationQueue& next) {
  const bool measured = partition == measured_partition_;
  if (measured) gauge_->take(first_rank_buffer(partition));
  const std::span<const uint64_t> block_bytes =
      partitions_[partition]->start(round_, pull_of(request_));
  count(partition, block_bytes);
  start(partition, 0, block_bytes, next);
  if (measured) begin_operation(*operations_.back(), round_ / gauge_->every(), {}, next);
}

void CompressedTensor::start(size_t partition, size_t stage, std::span<const uint64_t> block_bytes,
                             OperationQueue& next) const {
  begin_operation(*operations_[partition * stages_ + stage], round_, block_bytes, next);
}

// The payload, or the vector, is complete. Only a vector that an all-reduce sums has chunks.
void CompressedTensor::begin_operation(CollectiveOperation& operation, uint64_t round,
                                       std::span<const uint64_t> block_bytes,
                                       OperationQueue& next) const {
  const bool vector = operation.plan().codec != CodecId::kDense && reduces(operation.plan().kind);
  next.add({vector ? OperationEvent::Kind::kBeginWhole : OperationEvent::Kind::kBegin, &operation,
            round, block_bytes, 0});
}

// What the codec has made of the node's gradient: a vector, a block for each target, or one block.
void CompressedTensor::count(size_t partition, std::span<const uint64_t> block_bytes) const {
  if (request_.pull_only) return;
  const CollectivePlan& plan = partitions_[partition]->stages()[0].plan;
  uint64_t made = 0;
  if (block_bytes.empty()) {
    made = plan.count * dtype_bytes(plan.dtype);
  } else if (plan.kind == CollectiveKind::kAllToAll) {
    made = std::accumulate(block_bytes.begin(), block_bytes.end(), uint64_t{0});
  } else {
    made = block_bytes[job_.agent_index];
  }
  job_.traffic->uncompressed_bytes.add(partitions_[partition]->elements() * sizeof(float));
  job_.traffic->compressed_bytes.add(made);
}

// The first rank buffer contains the sum. The other rank buffers contain what their ranks wrote.
Status CompressedTensor::refuse_not_finite(size_t partition) const {
  const std::span<const float> sum = first_rank_buffer(partition);
  const size_t bad = first_not_finite(sum.data(), sum.size());
  if (bad == sum.size()) return {};
  const size_t element = partition * compression_.partition_elements + bad;
  const auto is_bad = [&](const float* rank_buffer) {
    return !std::isfinite(rank_buffer[element]);
  };
  const auto others = rank_buffers_.begin() + 1;
  const auto found = std::find_if(others, rank_buffers_.end(), is_bad);
  const size_t local =
      found == rank_buffers_.end() ? 0 : static_cast<size_t>(found - rank_buffers_.begin());
  const bool overflow = rank_buffers_.size() > 1 && local == 0;
  return error("O901",
               "tensor \"" + add_.plan.spec.name + "\": element " + std::to_string(element) +
                   " of rank " + std::to_string(job_.local_ranks[local]) +
                   (overflow ? ", or its sum with the other ranks of the node," : "") + " is " +
                   std::to_string(found == rank_buffers_.end() ? sum[bad] : (*found)[element]));
}

// Partitions may begin at other elements.
void CompressedTensor::take_residual_state(TensorRound& other) {
  if (other.compressed() == nullptr) return;
  CompressedTensor& from = *other.compressed();
  if (from.add_.shape.count != add_.shape.count) return;
  rounds_before_ = from.rounds_before_ + from.round_;
  const uint64_t partition_elements = compression_.partition_elements;
  uint64_t first = 0;
  for (const auto& old : from.partitions_) {
    const uint64_t end = first + old->elements();
    for (uint64_t at = first; at < end;) {
      CompressedPartition& into = *partitions_[at / partition_elements];
      const uint64_t there = at % partition_elements;
      const uint64_t elements = std::min(end - at, into.elements() - there);
      into.take_residual_state(*old, at - first, there, elements);
      at += elements;
    }
    first = end;
  }
}

Status CompressedTensor::take_turn_with_residual_state() {
  const bool reads = request_.kind == SubmissionKind::kReadResidualState;
  for (const auto& partition : partitions_)
    GRADBUS_RETURN_IF_ERROR(reads ? partition->read_residual_state(request_.part)
                                  : partition->write_residual_state(request_.part));
  open_ = 0;
  return {};
}

Status CompressedTensor::ended(const CollectiveOperation& operation, OperationQueue& next) {
  const TracedWork decoding(traced(), TraceKind::kDecode);
  return advance(operation, next);
}

Status CompressedTensor::advance(const CollectiveOperation& operation, OperationQueue& next) {
  const size_t partition = operation.id().index / stages_;
  const size_t stage = operation.id().index % stages_;
  if (partition < partitions_.size()) {
    const Result<std::span<const uint64_t>> input = partitions_[partition]->advance(stage);
    if (!input.ok()) return input.status().with_context("tensor \"" + add_.plan.spec.name + "\"");
    if (partitions_[partition]->waits()) {
      waiting_.push_back({partition, stage + 1});
      return {};
    }
    if (stage + 1 < stages_) {
      start(partition, stage + 1, input.value(), next);
      return {};
    }
  }
  --open_;
  if (done() && measured_partition_ < partitions_.size()) measure();
  return {};
}

Status CompressedTensor::resume(OperationQueue& next) {
  for (const Waiting one : waiting_) {
    const Result<std::span<const uint64_t>> input = partitions_[one.partition]->resume();
    if (!input.ok()) return input.status();
    if (partitions_[one.partition]->waits()) continue;
    std::erase_if(waiting_,
                  [one](const Waiting& other) { return other.partition == one.partition; });
    start(one.partition, one.stage, input.value(), next);
    return {};
  }
  return {};
}

void CompressedTensor::measure() {
  sample_ = gauge_->compare(first_rank_buffer(measured_partition_),
                            scale_of(add_.last, compression_.spec, job_.agents),
                            partitions_[measured_partition_]->residual_norm());
  sample_.job = job_.job;
  sample_.tensor = add_.plan.id;
  sample_.round = round_;
  measured_ = std::isfinite(sample_.cosine) && std::isfinite(sample_.relative_error) &&
              std::isfinite(sample_.residual_ratio);
}

void CompressedTensor::finished() {
  if (!measured_) return;
  job_.fidelity->post(sample_);
  job_.traffic->fidelity_cosine.store(sample_.cosine, std::memory_order_relaxed);
}

}  // namespace gradbus
