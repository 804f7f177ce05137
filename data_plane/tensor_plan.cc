#include "data_plane/tensor_plan.h"

#include <utility>

#include "common/errors.h"
#include "compression/payload.h"
#include "compression/registry.h"
#include "proto/algorithms.h"
#include "proto/frame.h"
#include "proto/tensor_ids.h"

namespace gradbus {
namespace {

std::string plan_title(const v1::ReadyTensor& ready) {
  return "the coordinator's plan for tensor \"" + ready.name() + "\"";
}

Status check_chunks(const v1::ReadyTensor& ready, const TensorSpec& spec) {
  const uint64_t frame_elements = kFramePayloadBytesMax / dtype_bytes(spec.dtype);
  if (ready.chunk_elements() == 0 || ready.chunk_elements() > frame_elements)
    return error("D602", plan_title(ready) + " has chunks of " +
                             std::to_string(ready.chunk_elements()) + " elements; 1 to " +
                             std::to_string(frame_elements) + " fit a frame");
  if (spec.count / ready.chunk_elements() > UINT32_MAX - kRanksMax || ready.id() >= kTensorIdsMax)
    return error("D602", plan_title(ready) + " has number " + std::to_string(ready.id()) +
                             " and chunks of " + std::to_string(ready.chunk_elements()) +
                             " elements");
  return {};
}

// none() when the tensor is not compressed.
Result<CompressionPlan> compression_from(const v1::ReadyTensor& ready, const TensorSpec& tensor,
                                         uint32_t agents) {
  if (ready.communicator().empty()) return CompressionPlan();
  const std::string who = plan_title(ready);
  const Result<CompressionSpec> spec = parse_compression(tensor.compression);
  if (!spec.ok()) return spec.status().with_context(who);
  const bool sums = tensor.kind == CollectiveKind::kAllReduce && tensor.dtype == DType::kF32 &&
                    (tensor.op == ReduceOp::kSum || tensor.op == ReduceOp::kAverage);
  if (!sums || (tensor.columns != 0 && tensor.count % tensor.columns != 0))
    return error("D602", who + " compresses a tensor that cannot be compressed");
  const Communicator communicator = find_communicator(ready.communicator());
  const CodecRow& codec = *spec.value().codec;
  const bool summed = communicator == Communicator::kAllReduce;
  const bool possible = is_on_shards(tensor.mode) ? communicator == Communicator::kPs : agents > 1;
  if (communicator == Communicator::kAuto || !possible ||
      (summed ? !is_linear(spec.value()) && !is_mergeable(spec.value()) : codec.make == nullptr))
    return error("D602", who + " names communicator \"" + ready.communicator() +
                             "\", which does not fit " + tensor.compression);
  const uint64_t partition = ready.partition_elements();
  if (tensor.count == 0 || partition == 0 || partition > kPartitionElementsMax ||
      tensor.count / partition >= 1 << 14 ||
      (partition < tensor.count && partition % ready.chunk_elements() != 0))
    return error("D602", who + " has partitions of " + std::to_string(partition) + " elements");
  return CompressionPlan{spec.value(), communicator, partition, tensor.columns};
}

Result<std::optional<MovedFrom>> moved_from(const v1::ReadyTensor& ready, const PlannedJob& job) {
  if (!ready.has_moved_from()) return std::optional<MovedFrom>();
  const v1::MovedFrom& from = ready.moved_from();
  if (from.chunk_elements() == 0 || from.id() >= ready.id())
    return error("D602", plan_title(ready) + " replaces a tensor that does not match it");
  if (from.placement() >= job.shard_sets.size())
    return error("D602", plan_title(ready) + " has placement " + std::to_string(from.placement()) +
                             " of " + std::to_string(job.shard_sets.size()));
  return std::optional<MovedFrom>({from.id(), from.chunk_elements(), from.placement()});
}

Result<PsPlan> ps_plan_from(const v1::ReadyTensor& ready, const TensorPlan& tensor,
                            CompressionPlan compression, const PlannedJob& job) {
  const std::string who = plan_title(ready);
  if (ready.placement() >= job.shard_sets.size())
    return error("D602", who + " has placement " + std::to_string(ready.placement()) + " of " +
                             std::to_string(job.shard_sets.size()));
  PsPlan plan{job.shard_sets[ready.placement()], ready.placement(), 1, std::move(compression), {}};
  const uint32_t shards = plan.shards.shards;
  if (ready.algorithm() != static_cast<uint32_t>(Algorithm::kShards) || shards == 0 ||
      tensor.mode.replicas > shards)
    return error("D602", who + " has mode \"" + tensor.spec.mode + "\" and algorithm number " +
                             std::to_string(ready.algorithm()) + " with " + std::to_string(shards) +
                             " shards");
  plan.replicas = tensor.mode.settled_replicas(shards);
  if (tensor.mode.keeps_tensors_whole() && !plan.compression.spec.none())
    return error("D602", who + " compresses a tensor, which mode \"" + tensor.spec.mode +
                             "\" does not support");
  auto moved = moved_from(ready, job);
  if (!moved.ok()) return moved.status();
  plan.moved_from = moved.take();
  return plan;
}

// Between agents.
Status check_algorithm(const v1::ReadyTensor& ready, const TensorSpec& spec) {
  const auto algorithm = static_cast<Algorithm>(ready.algorithm());
  const bool whole = ready.chunk_elements() >= spec.count;
  if (is_algorithm(ready.algorithm()) && algorithm != Algorithm::kShards &&
      fits(spec.kind, algorithm) &&
      (algorithm != Algorithm::kRecursiveDoubling || whole || !ready.communicator().empty()))
    return {};
  return error("D602", plan_title(ready) + " names algorithm " + std::to_string(ready.algorithm()) +
                           ", which does not fit this " + std::string(collective_name(spec.kind)));
}

}  // namespace

Algorithm TensorPlan::algorithm() const {
  if (const auto* dense = std::get_if<DensePlan>(&exchange)) return dense->algorithm;
  if (const auto* compressed = std::get_if<CompressedPlan>(&exchange)) return compressed->algorithm;
  return Algorithm::kShards;
}

const CompressionPlan& TensorPlan::compression() const {
  static const CompressionPlan none;
  if (ps() != nullptr) return ps()->compression;
  const auto* const compressed = std::get_if<CompressedPlan>(&exchange);
  return compressed == nullptr ? none : compressed->compression;
}

Result<TensorPlan> tensor_plan_from(const v1::ReadyTensor& ready, const PlannedJob& job) {
  TensorPlan plan;
  plan.id = ready.id();
  plan.spec = spec_from(ready.spec());
  if (const Status bad = check_spec(plan.spec, job.world); !bad.ok())
    return error("D602", plan_title(ready) + " is not valid: " + bad.message());
  plan.mode = parse_mode(plan.spec.mode).take();  // check_spec() knows it
  GRADBUS_RETURN_IF_ERROR(check_chunks(ready, plan.spec));
  plan.chunk_elements = ready.chunk_elements();
  plan.may_use_nccl = ready.nccl();
  Result<CompressionPlan> compression = compression_from(ready, plan.spec, job.agents);
  if (!compression.ok()) return compression.status();
  if (plan.mode.on_shards()) {
    Result<PsPlan> ps = ps_plan_from(ready, plan, compression.take(), job);
    if (!ps.ok()) return ps.status();
    plan.exchange = ps.take();
    return plan;
  }
  GRADBUS_RETURN_IF_ERROR(check_algorithm(ready, plan.spec));
  const auto algorithm = static_cast<Algorithm>(ready.algorithm());
  if (compression.value().spec.none()) {
    plan.exchange = DensePlan{algorithm};
  } else {
    plan.exchange = CompressedPlan{algorithm, compression.take()};
  }
  return plan;
}

}  // namespace gradbus
