// How a GPU encodes and decodes a partition (compression/cuda/cuda_codec.h), and which partitions
// it supports. The codec itself stays on the host, which checks payloads with it.
//
// For a selecting codec, GPU and host exchange lists of elements. The host converts lists to
// payloads and payloads to lists (cuda_selection.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compression/cuda/cuda_codec.h"
#include "compression/payload.h"
#include "data_plane/partition_plan.h"

namespace gradbus {

struct DeviceCoding {
  // For a codec that has kernels.
  DeviceCoding(std::unique_ptr<Codec> of, size_t count);

  bool lists() const { return on_device.family == CudaFamily::kSelections; }
  // The most device memory that it uses.
  size_t device_bytes() const;

  std::unique_ptr<Codec> codec;
  CudaCodec on_device;
  CudaChoice most;           // cuda_choice_max()
  size_t payload_bytes = 0;  // at most
};

// Returns GB-D628, prefixed with `who`, and names what devices do not support: codecs without
// kernels, threshold, clipped gradients, nan=stop and fidelity=. For all-reduce: all except fp16,
// bf16, powersgd and blocktopk.
Status fits_device(const std::string& who, const CompressionPlan& compression, uint64_t count);

// The encodings of a partition: that of the node's sum and, if partitions have owners, that of the
// owner's sum.
std::vector<DeviceCoding> device_codings(const CompressionPlan& compression,
                                         const CodecShape& shape, uint32_t agents);

// The operations of a partition, equal to those of partitions in host memory.
std::vector<Stage> device_stages(const PartitionPlan& partition,
                                 const std::vector<DeviceCoding>& codings);

}  // namespace gradbus
