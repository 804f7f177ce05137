// powersgd and blocktopk of a partition on a GPU (compression/cuda/cuda_linear.h). The GPU does all
// work that reads the elements. The codec itself stays on the host and does the small work: it
// draws Q, orthogonalises P and chooses blocks. Its results are in pinned memory of the partition,
// and are copied to the same offset of the partition's device memory:
//
//   powersgd    Q for round 0 | P | Q for finish()
//   blocktopk   the chosen blocks, u32 | of each block its place among them + 1, or 0, u32
//
// Each part is written once in a round, after the ring of the round's first vector. The first Q is
// written before, but nothing reads it after that ring. So no copy of the previous round is
// pending.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "compression/codec.h"
#include "compression/cuda/cuda_linear.h"
#include "data_plane/partition_plan.h"
#include "worker_agent/gpu/cuda_plugin.h"

namespace gradbus {

class DeviceLinear {
 public:
  // Of a partition's memory.
  struct Part {
    size_t offset = 0;
    size_t bytes = 0;
  };
  // Where kernels work: the partition, the device's copy of its parts, and a vector.
  struct Place {
    CudaPartition partition;
    std::byte* parts = nullptr;
    void* vector = nullptr;
  };

  virtual ~DeviceLinear() = default;

  const LinearCodec& codec() const { return *codec_; }
  size_t vector_bytes(uint32_t round) const;
  virtual size_t parts_bytes() const = 0;

  // ---- the host: what has to be copied before the kernels
  virtual Part begin(uint64_t shared_seed, std::span<std::byte> parts) = 0;
  // `sum` of round 0. Nothing: there is nothing to compute, `vector` has been filled.
  virtual std::optional<Part> go_on(std::span<const std::byte> sum, std::span<std::byte> parts,
                                    std::span<std::byte> vector) = 0;
  // `sum` of round 1.
  virtual Part end(std::span<const std::byte> sum, uint32_t agents, std::span<std::byte> parts) = 0;
  // Whether finish() reads that sum.
  virtual bool reads_sum() const = 0;

  // ---- the device
  virtual CudaResult project(const CudaTable& cuda, CudaStream* stream, uint32_t round,
                             const Place& place) const = 0;
  // `scale`: of the sum over agents.
  virtual CudaResult finish(const CudaTable& cuda, CudaStream* stream, const Place& place,
                            float scale, uint32_t agents, float* values) const = 0;

 protected:
  explicit DeviceLinear(std::unique_ptr<LinearCodec> codec) : codec_(std::move(codec)) {}

 private:
  const std::unique_ptr<LinearCodec> codec_;
};

// Nothing: the codec is another.
std::unique_ptr<DeviceLinear> make_device_linear(const CompressionSpec& spec,
                                                 const CodecShape& shape);

}  // namespace gradbus
