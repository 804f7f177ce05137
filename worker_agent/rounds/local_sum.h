// Who sums the elements of a tensor's local ranks, and gives them the result: threads of this node,
// which share the ranks' memory (HostSum), or the ranks' GPUs (GpuSum). The sum is ready chunk by
// chunk in the first rank buffer, from which it is exchanged with other nodes (tensor_round.h).
//
// Engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "common/status.h"
#include "proto/numbers.h"
#include "shared_memory/local_reduction.h"
#include "worker_agent/gpu/device_tensor.h"

namespace gradbus {

class LocalSum {
 public:
  virtual ~LocalSum() = default;

  // All local ranks have posted.
  virtual Status start() = 0;
  // Whether this chunk of the sum is ready. May sum one chunk.
  virtual Result<bool> chunk_ready(uint32_t chunk, uint64_t round) = 0;
  // Whether the engine must ask again without a pause, because nothing wakes it.
  virtual bool is_polled() const = 0;
  // The result of all nodes is in the first rank buffer.
  virtual Status deliver() = 0;
};

class HostSum final : public LocalSum {
 public:
  explicit HostSum(LocalReduction& local_reduction) : local_reduction_(local_reduction) {}

  Status start() override { return {}; }
  Result<bool> chunk_ready(uint32_t chunk, uint64_t round) override {
    const LocalReductionShape& shape = local_reduction_.shape();
    const bool alone = shape.local_size == 1 && shape.reduction.copies();
    if (alone || local_reduction_.chunk_reduced(chunk, round)) return true;
    local_reduction_.reduce_chunks(round, kAgentReducer, 1);
    return local_reduction_.chunk_reduced(chunk, round);
  }
  bool is_polled() const override { return true; }
  Status deliver() override { return {}; }  // collective operations write to all rank buffers

 private:
  LocalReduction& local_reduction_;
};

class GpuSum final : public LocalSum {
 public:
  explicit GpuSum(std::shared_ptr<DeviceTensor> device) : device_(std::move(device)) {}

  Status start() override { return device_->start(); }
  Result<bool> chunk_ready(uint32_t chunk, uint64_t) override {
    const bool ready = device_->summed(chunk);
    GRADBUS_RETURN_IF_ERROR(device_->failure());
    return ready;
  }
  bool is_polled() const override { return false; }  // GPUs ring
  Status deliver() override { return device_->leaves_node() ? device_->deliver() : Status(); }

 private:
  const std::shared_ptr<DeviceTensor> device_;
};

}  // namespace gradbus
