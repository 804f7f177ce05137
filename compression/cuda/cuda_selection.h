// Lists of selected elements, which a device makes and takes (cuda_codec.h), from and to payloads.
// On the host; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compression/cuda/cuda_codec.h"

namespace gradbus {

// The payload of a list that encoding left, with m = `entries`: byte for byte the codec's own.
// Returns its size, at most payload_bytes_max() of the codec. The list is aligned to 4 bytes.
size_t payload_of_list(const CudaCodec& codec, size_t count, uint32_t entries,
                       std::span<const std::byte> list, std::span<std::byte> payload);

// The list of a payload that has passed Codec::check(), with m = `entries`, which is as many as it
// has, at least; returns its size.
size_t list_of_payload(std::span<const std::byte> payload, uint32_t entries,
                       std::span<std::byte> list);

}  // namespace gradbus
