// Measures the effect of a compression on a gradient in a running job. Every `every` rounds one
// partition in turn is exchanged dense as well, and the two results are compared.
//
// The gauge: engine thread only. Allocates at construction only; its vector is in the tensor's
// staging memory.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>

#include "data_plane/partition_plan.h"

namespace gradbus {

struct FidelitySample {
  uint64_t job = 0;
  uint32_t tensor = 0;
  uint64_t round = 0;
  double cosine = 1;          // of the angle between the compressed and the dense result
  double relative_error = 0;  // |compressed - dense| / |dense|
  double residual_ratio = 0;  // residual / gradient of this round, on this agent
};

// The last sample of each tensor of a job, from the engine to the conductor. Any thread.
class FidelityBoard {
 public:
  void post(const FidelitySample& sample);
  // Samples posted since the last call, by tensor.
  std::map<uint32_t, FidelitySample> take();

 private:
  std::mutex lock_;
  std::map<uint32_t, FidelitySample> newest_;
};

class FidelityGauge {
 public:
  // For partitions like `partition`, which is the longest. `every` > 0.
  FidelityGauge(const PartitionPlan& partition, uint64_t every);

  const Stage& stage() const { return stage_; }
  uint64_t every() const { return every_; }
  void attach(std::span<std::byte> memory);

  // Which of `partitions` is measured in this round, from 1; `partitions` for none.
  size_t partition_of(uint64_t round, size_t partitions) const;
  // Copies the gradient before its compression; the rest of the vector becomes 0.
  void take(std::span<const float> gradient);
  // The vector contains the sum of all agents. `result` was multiplied by `scale`.
  FidelitySample compare(std::span<const float> result, float scale, double residual_norm);

 private:
  const uint64_t every_;
  const Stage stage_;
  std::span<float> vector_;
  double gradient_norm_ = 0;
};

}  // namespace gradbus
