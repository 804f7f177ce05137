#include "server/coordinator/planning/compression_plan.h"

#include <algorithm>
#include <numeric>

#include "common/errors.h"
#include "common/policy/codec_choice.h"
#include "common/policy/sync_mode.h"
#include "compression/error_feedback.h"
#include "compression/payload.h"
#include "compression/registry.h"
#include "proto/frame.h"
#include "server/coordinator/members/text.h"
#include "server/coordinator/planning/align.h"

namespace gradbus {
namespace {

constexpr uint64_t kPartitionElements = 1 << 20;
constexpr uint64_t kPartitionsMax = (1 << 14) - 1;  // at most 3 exchanges each, numbered in 16 bits
constexpr uint32_t kPartitionsPerShard = 4;
constexpr uint64_t kProbeElements = 1 << 16;

Status misfit(const v1::TensorSpec& spec, const std::string& what) {
  return error("O910", "tensor " + tensor_in_quotes(spec.name()) + ", compression \"" +
                           spec.compression() + "\": " + what);
}

double payload_bytes_per_element(const CompressionSpec& compression) {
  const auto codec = make_codec(compression, {.count_max = kProbeElements});
  return static_cast<double>(codec->payload_bytes_max(kProbeElements)) / kProbeElements;
}

Communicator choose(const v1::TensorSpec& spec, const CompressionSpec& compression,
                    const JobSize& size, const PlanOptions& options) {
  if (compression.communicator() != Communicator::kAuto) return compression.communicator();
  const CodecRow& codec = *compression.codec;
  if (is_linear(compression)) return Communicator::kAllReduce;
  if (codec.traits.selects || codec.traits.by_rows) return Communicator::kAllGather;
  const PathCost path =
      path_cost(options.told, options.deterministic ? PathFigures{} : options.measured);
  const double payload_us = payload_bytes_per_element(compression) *
                            static_cast<double>(spec.count()) * path.beta_ns / 1000;
  const double agents = size.agents;
  const double gathered = path.alpha_us + (agents - 1) * payload_us;
  const double owned = 2 * path.alpha_us + 2 * (agents - 1) / agents * payload_us;
  return owned < gathered ? Communicator::kPs : Communicator::kAllGather;
}

uint64_t longest_partition(const CompressionSpec& compression) {
  const CodecTraits& traits = compression.codec->traits;
  return traits.whole_partition || traits.needs_matrix ? kPartitionElementsMax / 2
                                                       : kPartitionElements;
}

uint64_t whole_chunks(uint64_t partition, const v1::TensorSpec& spec, uint64_t chunk) {
  partition = std::max(partition, divide_up(spec.count(), kPartitionsMax));
  return round_up(std::min<uint64_t>(partition, spec.count()), chunk);
}

// Partitions are whole chunks, and bits depend on where a partition ends.
uint64_t chunk_bytes(const PlanOptions& options) {
  const bool chosen = options.chunk_bytes > 0 && !options.deterministic;
  return chosen ? options.chunk_bytes : 256 << 10;
}

// Chunks are whole rows, because a row that two partitions share is sent in two halves. A chunk may
// be too short for that, as in small tensors on many shards.
uint64_t of_whole_rows(uint64_t chunk, const v1::TensorSpec& spec,
                       const CompressionSpec& compression) {
  const uint64_t row = row_elements(compression, spec.columns());
  if (row == 0 || chunk >= spec.count()) return chunk;
  const uint64_t step = std::lcm(row, kAlignElements);
  return chunk < step ? chunk : chunk / step * step;
}

std::string names_that_contract() {
  std::string names;
  for (const CodecRow* row : codec_rows())
    if (row->make != nullptr && row->id != CodecId::kDense &&
        contracts(parse_compression(row->name).value()))
      names.append(names.empty() ? "" : ", ").append(row->name);
  return names;
}

// What comes back is what the parameters differ in from what an agent has of them.
Status check_parameters(const v1::TensorSpec& spec, const CompressionSpec& compression) {
  if (compression.options.number("fidelity") > 0)
    return misfit(spec,
                  "fidelity= compares sums, and mode " + spec.mode() + " makes none: leave it out");
  if (contracts(compression)) return {};
  return misfit(spec, "parameters of mode " + spec.mode() + " come back as differences, which " +
                          std::string(compression.codec->name) +
                          " does not bring nearer for certain: take " + names_that_contract() +
                          ", or mode ps:sync");
}

// Rounds of a delayed tensor go by turns through k + 1 tensors, each with a state of its own. A
// residual is sent later, but a momentum would have the gradients of every k + 1st step only.
Status check_delayed(const v1::TensorSpec& spec, const CompressionSpec& compression) {
  const Result<SyncMode> mode = parse_mode(spec.mode());
  if (!mode.ok() || mode.value().delay == 0) return {};
  if (error_feedback_options(compression, 1).kind != ErrorFeedbackKind::kDgc &&
      compression.codec->id != CodecId::kSignum)
    return {};
  return misfit(spec, "mode " + spec.mode() +
                          " goes without a momentum in the codec: leave the momentum to the "
                          "optimizer (ef=residual), or take mode sync");
}

// Shards take payloads only, one from each agent, and send one back.
Status check_on_shards(const v1::TensorSpec& spec, const CompressionSpec& compression) {
  const Communicator wanted = compression.communicator();
  if (wanted != Communicator::kAuto && wanted != Communicator::kPs)
    return misfit(spec, "mode " + spec.mode() + " is communicator ps: leave out communicator=" +
                            std::string(communicator_name(wanted)) + ", or take mode sync");
  const Result<SyncMode> mode = parse_mode(spec.mode());
  if (compression.codec->make != nullptr)
    return mode.ok() && mode.value().holds_parameters() ? check_parameters(spec, compression)
                                                        : Status();
  return misfit(spec, "payloads of " + std::string(compression.codec->name) +
                          " are summed on their way, which mode " + spec.mode() +
                          " does not do: take mode sync, or another codec");
}

}  // namespace

Status check_compression(const v1::TensorSpec& spec) {
  if (spec.compression().empty()) return {};
  if (is_codec_choice(spec.compression()))
    return misfit(spec,
                  "a codec is chosen for gradients of PyTorch's DistributedOptimizer only: "
                  "name one");
  const Result<CompressionSpec> parsed = parse_compression(spec.compression());
  if (!parsed.ok()) return parsed.status();
  const CompressionSpec& compression = parsed.value();
  if (compression.none()) return {};
  if (spec.collective() != static_cast<uint32_t>(CollectiveKind::kAllReduce) ||
      spec.dtype() != static_cast<uint32_t>(DType::kF32) ||
      (spec.op() != static_cast<uint32_t>(ReduceOp::kSum) &&
       spec.op() != static_cast<uint32_t>(ReduceOp::kAverage)))
    return misfit(spec, "only an all-reduce of f32 by sum or average can be compressed");
  if (spec.columns() != 0 && spec.count() % spec.columns() != 0)
    return misfit(spec, std::to_string(spec.count()) + " elements are no matrix of " +
                            std::to_string(spec.columns()) + " columns");
  if (compression.codec->make == nullptr && !is_linear(compression))
    return misfit(spec, "entropy=zstd needs payloads that are not summed on their way");
  if (compression.codec->traits.by_rows && row_elements(compression, spec.columns()) == 0)
    return misfit(spec, "how many elements has a row? Say " + std::string(compression.codec->name) +
                            ":dim=N, or register the tensor with its columns");
  const bool summed = compression.communicator() == Communicator::kAllReduce;
  const bool coded = compression.communicator() == Communicator::kAllGather ||
                     compression.communicator() == Communicator::kPs;
  if ((summed && !is_linear(compression) && !is_mergeable(compression)) ||
      (coded && compression.codec->make == nullptr))
    return misfit(spec, "payloads of " + std::string(compression.codec->name) +
                            (summed ? " cannot be summed on their way: use allgather or ps"
                                    : " are summed on their way: use allreduce"));
  GRADBUS_RETURN_IF_ERROR(check_delayed(spec, compression));
  return is_on_shards(spec.mode()) ? check_on_shards(spec, compression) : Status();
}

TensorPlan plan_compressed(const v1::TensorSpec& spec, const CompressionSpec& compression,
                           const JobSize& size, const PlanOptions& options) {
  TensorPlan plan;
  v1::TensorSpec dense = spec;
  dense.clear_compression();
  plan.algorithm = plan_tensor(dense, size, options).algorithm;
  plan.chunk_elements = of_whole_rows(
      plan_chunk_elements(spec, size, chunk_bytes(options), Algorithm::kChain), spec, compression);
  plan.communicator = choose(spec, compression, size, options);
  plan.why = compression.communicator() == Communicator::kAuto
                 ? "its communicator is predicted to be the fastest"
                 : "its communicator was asked for";
  uint64_t partition = longest_partition(compression);
  if (plan.communicator == Communicator::kPs)
    partition = std::min(partition, divide_up(spec.count(), size.agents));
  plan.partition_elements = whole_chunks(partition, spec, plan.chunk_elements);
  return plan;
}

// A shard's share in as few partitions as it takes, all about as long. Where parts are unequal: a
// few partitions a shard, or whole patterns.
TensorPlan plan_ps_sync(const v1::TensorSpec& spec, const CompressionSpec& compression,
                        const ShardCount& shards, const PlanOptions& options) {
  PlanOptions cut = options;
  cut.chunk_bytes = chunk_bytes(options);
  TensorPlan plan = plan_on_shards(spec, shards, cut);
  plan.chunk_elements = of_whole_rows(plan.chunk_elements, spec, compression);
  plan.communicator = Communicator::kPs;
  const uint64_t parts = std::min(shards.period, kPartitionsPerShard * shards.shards);
  const uint64_t share = divide_up(spec.count(), parts);
  const uint64_t partition = divide_up(share, divide_up(share, longest_partition(compression)));
  plan.partition_elements = whole_chunks(partition, spec, plan.chunk_elements);
  return plan;
}

}  // namespace gradbus
