// The header of payloads that contain every element: flags 0, entries = count, and a body whose
// size follows from the count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compression/payload.h"

namespace gradbus {

void store_every_element_header(CodecId codec, uint8_t detail, size_t count, size_t body_bytes,
                                std::span<std::byte> payload);

// Checks the payload header and these fields.
Status check_every_element_header(std::span<const std::byte> payload, CodecId codec, uint8_t detail,
                                  size_t count, size_t body_bytes);

}  // namespace gradbus
