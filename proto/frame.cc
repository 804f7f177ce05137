// Seals and checks data-plane frames (format in proto/frame.h). Pure, any thread.
#include "proto/frame.h"

#include <string>

#include "common/check.h"
#include "common/crc32c.h"
#include "common/errors.h"

namespace gradbus {
namespace {

uint32_t header_crc_of(const FrameHeader& header) {
  return crc32c(std::as_bytes(std::span(&header, 1)).first(offsetof(FrameHeader, header_crc)));
}

Status refuse(const char* field, uint64_t value, const std::string& allowed) {
  return error("D601", std::string("frame field ") + field + " is " + std::to_string(value) +
                           ", allowed: " + allowed);
}

// These kinds carry no elements, so they may leave the signature fields 0.
bool is_control(const FrameHeader& header) {
  const auto kind = static_cast<FrameKind>(header.kind & ~kSequencedFrame);
  return kind == FrameKind::kHello || kind == FrameKind::kCredit || kind == FrameKind::kProbe ||
         kind == FrameKind::kLinkState;
}

bool is_sequenced(const FrameHeader& header) { return (header.kind & kSequencedFrame) != 0; }

// A hello is sent before frames have numbers, and the state of a link has no number.
bool is_kind(const FrameHeader& header) {
  const auto number = static_cast<uint8_t>(header.kind & ~kSequencedFrame);
  const bool numbered = number > static_cast<uint8_t>(FrameKind::kHello) &&
                        number < static_cast<uint8_t>(FrameKind::kLinkState);
  return numbered || number == static_cast<uint8_t>(FrameKind::kMoved) ||
         (!is_sequenced(header) && (number == static_cast<uint8_t>(FrameKind::kHello) ||
                                    number == static_cast<uint8_t>(FrameKind::kLinkState)));
}

Status check_version(const FrameHeader& header) {
  if (header.version == kFrameVersion) return {};
  return error("V801", "frame field version is " + std::to_string(header.version) +
                           ", this program speaks " + std::to_string(kFrameVersion));
}

// Checks first whether this is a frame of our version with a valid checksum. A frame of another
// version, which may have another checksum, is detected by its magic. A numbered frame has no
// magic, but it comes on a link whose hello had our version.
Status check_envelope(const FrameHeader& header) {
  const bool has_magic = header.magic == kFrameMagic;
  if (!has_magic && !is_sequenced(header)) {
    return refuse("magic", header.magic, std::to_string(kFrameMagic));
  }
  if (has_magic) GRADBUS_RETURN_IF_ERROR(check_version(header));
  const uint32_t crc = header_crc_of(header);
  if (header.header_crc != crc) {
    return refuse("header_crc", header.header_crc, std::to_string(crc) + " for these bytes");
  }
  return check_version(header);
}

Status check_signature(const FrameHeader& header) {
  const bool control = is_control(header);
  if (!is_dtype(header.dtype) && !(control && header.dtype == 0)) {
    return refuse("dtype", header.dtype, "1 to " + std::to_string(kDTypeLast));
  }
  if (!is_reduce_op(header.op)) return refuse("op", header.op, "0 to 8");
  if (!is_collective(header.collective) && !(control && header.collective == 0)) {
    return refuse("collective", header.collective, "1 to 3");
  }
  return {};
}

}  // namespace

void seal_frame(FrameHeader& header, std::span<const std::byte> payload) {
  GRADBUS_CHECK(payload.size() == header.length && header.length <= kFramePayloadBytesMax);
  header.payload_crc = crc32c(payload);
  header.header_crc = header_crc_of(header);
}

void reseal_header(FrameHeader& header) { header.header_crc = header_crc_of(header); }

Status check_frame_header(const FrameHeader& header) {
  GRADBUS_RETURN_IF_ERROR(check_envelope(header));
  if (!is_kind(header)) return refuse("kind", header.kind, "1 to 8");
  if (!is_codec(header.codec)) return refuse("codec", header.codec, "0 to 19");
  GRADBUS_RETURN_IF_ERROR(check_signature(header));
  if (header.length > kFramePayloadBytesMax) {
    return refuse("length", header.length, "at most " + std::to_string(kFramePayloadBytesMax));
  }
  if (header.length == 0 && header.payload_crc != 0) {
    return refuse("payload_crc", header.payload_crc, "0 without payload");
  }
  return {};
}

Status check_frame_payload(const FrameHeader& header, std::span<const std::byte> payload) {
  if (payload.size() != header.length) {
    return refuse("length", header.length,
                  std::to_string(payload.size()) + ", the bytes that came");
  }
  const uint32_t crc = crc32c(payload);
  if (header.payload_crc == crc) return {};
  // The header checksum is valid, and TCP has checksums too. So the payload changed before it was
  // sent.
  return error("D612", "tensor " + std::to_string(header.tensor) + " changed while round " +
                           std::to_string(header.step) + " of it was sent: the bytes of chunk " +
                           std::to_string(header.chunk) + " do not fit its payload_crc");
}

}  // namespace gradbus
