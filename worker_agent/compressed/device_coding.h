// What a GPU encodes and decodes a unit with (compression/cuda/cuda_codec.h), and which units it
// can. The codec itself stays on the host, which checks payloads with it.
//
// Of a codec that selects, lists of elements go between GPU and host, which makes payloads of them
// and them of payloads (cuda_selection.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compression/cuda/cuda_codec.h"
#include "compression/payload.h"
#include "worker_agent/compressed/unit_plan.h"

namespace gradbus {

struct DeviceCoding {
  // Of a codec that has kernels.
  DeviceCoding(std::unique_ptr<Codec> of, size_t count);

  bool lists() const { return on_device.family == CudaFamily::kSelections; }
  // What it puts into memory of the device, at most.
  size_t device_bytes() const;

  std::unique_ptr<Codec> codec;
  CudaCodec on_device;
  CudaChoice most;           // cuda_choice_max()
  size_t payload_bytes = 0;  // at most
};

// GB-D628, with `who` before it, naming what is not done on a device: codecs that have no kernels,
// threshold, clipped gradients, nan=stop and fidelity=. In flight: all but fp16, bf16, powersgd and
// blocktopk.
Status fits_device(const std::string& who, const CompressionPlan& compression, uint64_t count);

// Of a unit: of the node's sum, and where units have owners, of what these send back.
std::vector<DeviceCoding> device_codings(const CompressionPlan& compression,
                                         const CodecShape& shape);

// A unit's exchanges, the same as of units in memory of the host.
std::vector<Stage> device_stages(const UnitPlan& unit, const std::vector<DeviceCoding>& codings);

}  // namespace gradbus
