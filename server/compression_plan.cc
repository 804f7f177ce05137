#include "server/compression_plan.h"

#include <algorithm>

#include "common/errors.h"
#include "compression/payload.h"
#include "compression/registry.h"
#include "proto/frame.h"
#include "server/text.h"

namespace gradbus {
namespace {

constexpr uint64_t kUnitElements = 1 << 20;
constexpr uint64_t kUnitsMax = (1 << 14) - 1;  // at most 3 exchanges each, numbered in 16 bits
constexpr uint64_t kProbeElements = 1 << 16;

uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

Status misfit(const v1::TensorSpec& spec, const std::string& what) {
  return error("O910", "tensor " + in_quotes(spec.name()) + ", compression \"" +
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
  if (codec.traits.selects) return Communicator::kAllGather;
  const PathCost path =
      path_cost(options.told, options.deterministic ? PathFigures{} : options.measured);
  const double payload_us = payload_bytes_per_element(compression) *
                            static_cast<double>(spec.count()) * path.beta_ns / 1000;
  const double agents = size.agents;
  const double gathered = path.alpha_us + (agents - 1) * payload_us;
  const double owned = 2 * path.alpha_us + 2 * (agents - 1) / agents * payload_us;
  return owned < gathered ? Communicator::kPs : Communicator::kAllGather;
}

uint64_t unit_elements(const v1::TensorSpec& spec, const CompressionSpec& compression,
                       Communicator communicator, const JobSize& size, uint64_t chunk) {
  const CodecTraits& traits = compression.codec->traits;
  const bool whole = traits.whole_unit || traits.needs_matrix;
  uint64_t unit = whole ? kUnitElementsMax / 2 : kUnitElements;
  if (communicator == Communicator::kPs)
    unit = std::min(unit, (spec.count() + size.agents - 1) / size.agents);
  unit = std::max(unit, (spec.count() + kUnitsMax - 1) / kUnitsMax);
  return round_up(std::min<uint64_t>(unit, spec.count()), chunk);
}

}  // namespace

Status check_compression(const v1::TensorSpec& spec) {
  if (spec.compression().empty()) return {};
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
  const bool summed = compression.communicator() == Communicator::kAllReduce;
  const bool coded = compression.communicator() == Communicator::kAllGather ||
                     compression.communicator() == Communicator::kPs;
  if ((summed && !is_linear(compression) && !is_mergeable(compression)) ||
      (coded && compression.codec->make == nullptr))
    return misfit(spec, "payloads of " + std::string(compression.codec->name) +
                            (summed ? " cannot be summed on their way: use allgather or ps"
                                    : " are summed on their way: use allreduce"));
  return {};
}

TensorPlan plan_compressed(const v1::TensorSpec& spec, const CompressionSpec& compression,
                           const JobSize& size, const PlanOptions& options) {
  TensorPlan plan;
  v1::TensorSpec dense = spec;
  dense.clear_compression();
  plan.algorithm = plan_tensor(dense, size, options).algorithm;
  // Units are whole chunks, and bits depend on where a unit ends.
  const bool chosen = options.chunk_bytes > 0 && !options.deterministic;
  const uint64_t chunk_bytes = chosen ? options.chunk_bytes : 256 << 10;
  plan.chunk_elements = plan_chunk_elements(spec, size, chunk_bytes, Algorithm::kChain);
  plan.communicator = choose(spec, compression, size, options);
  plan.unit_elements =
      unit_elements(spec, compression, plan.communicator, size, plan.chunk_elements);
  return plan;
}

}  // namespace gradbus
