#include "shared_memory/half_averages.h"

#include <cmath>

#include "shared_memory/local_reduction.h"

namespace gradbus {
namespace {

bool scales_early(const TensorSpec& spec) {
  return spec.dtype == DType::kF16 && (spec.op == ReduceOp::kSum || spec.op == ReduceOp::kAverage);
}

}  // namespace

Reduction node_reduction(const TensorSpec& spec, uint32_t world_size) {
  Reduction whole = last_reduction(spec, world_size);
  if (!scales_early(spec)) return {.op = whole.op};
  if (std::abs(whole.postscale) >= 1) whole.postscale = 1;
  return whole;
}

Reduction reduction_after_nodes(const TensorSpec& spec, uint32_t world_size) {
  Reduction whole = last_reduction(spec, world_size);
  if (!scales_early(spec)) return whole;
  whole.divisor = 1;
  if (std::abs(whole.postscale) < 1) whole.postscale = 1;
  return whole;
}

}  // namespace gradbus
