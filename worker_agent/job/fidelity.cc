#include "worker_agent/job/fidelity.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/check.h"
#include "compression/kernels/vector/sums.h"

namespace gradbus {
namespace {

double norm(std::span<const float> values) {
  return std::sqrt(dot_product(values.data(), values.data(), values.size()));
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace

void FidelityBoard::post(const FidelitySample& sample) {
  const std::lock_guard lock(lock_);
  newest_[sample.tensor] = sample;
}

std::map<uint32_t, FidelitySample> FidelityBoard::take() {
  const std::lock_guard lock(lock_);
  return std::exchange(newest_, {});
}

FidelityGauge::FidelityGauge(const PartitionPlan& partition, uint64_t every)
    : every_(every), stage_(vector_stage(partition, DType::kF32, partition.count)) {
  GRADBUS_CHECK(every > 0);
}

void FidelityGauge::attach(std::span<std::byte> memory) {
  vector_ = {reinterpret_cast<float*>(memory.data()), stage_.plan.count};
}

size_t FidelityGauge::partition_of(uint64_t round, size_t partitions) const {
  return round % every_ == 0 ? round / every_ % partitions : partitions;
}

void FidelityGauge::take(std::span<const float> gradient) {
  gradient_norm_ = norm(gradient);
  const auto rest = std::copy(gradient.begin(), gradient.end(), vector_.begin());
  std::fill(rest, vector_.end(), 0.0F);
}

FidelitySample FidelityGauge::compare(std::span<const float> result, float scale,
                                      double residual_norm) {
  const std::span<float> dense = vector_.first(result.size());
  for (float& value : dense) value *= scale;
  const double dense_norm = norm(dense);
  FidelitySample sample;
  sample.cosine =
      ratio(dot_product(dense.data(), result.data(), result.size()), dense_norm * norm(result));
  for (size_t i = 0; i < result.size(); ++i) dense[i] = result[i] - dense[i];
  sample.relative_error = ratio(norm(dense), dense_norm);
  sample.residual_ratio = ratio(residual_norm, gradient_norm_);
  return sample;
}

}  // namespace gradbus
