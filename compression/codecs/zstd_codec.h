// entropy=zstd compresses the payload of another codec (Zstandard, RFC 8878: Huffman and FSE) if
// that makes it smaller. On normal data, QSGD's 8-bit levels shrink to 0.58 of the bytes, its 4-bit
// levels to 0.34, TernGrad to 0.62, a selection to 0.86. Signs do not shrink.
//
// Payload after the header of payload.h (codec, count, entries and detail are those of the inner
// payload; flags is kPayloadZstd alone):
//   offset 16  one Zstandard frame, with its content size, of the inner payload from its header on
// If compression would not make it smaller, the inner payload is sent as it is.
#pragma once

#include <memory>

#include "compression/codec.h"
#include "proto/numbers.h"

namespace gradbus {

inline constexpr uint8_t kPayloadZstd = 0x40;

class ZstdCodec final : public Codec {
 public:
  ZstdCodec(CodecId id, std::unique_ptr<Codec> inner, size_t count_max);
  ~ZstdCodec() override;

  size_t payload_bytes_max(size_t count) const override;
  size_t encode(const EncodeInput& input, std::span<std::byte> payload) override;
  Status check(std::span<const std::byte> payload, size_t count) const override;
  void accumulate(std::span<const std::byte> payload, float scale,
                  std::span<float> sum) const override;
  void decode(std::span<const std::byte> payload, float scale,
              std::span<float> values) const override;
  void clear_sent(std::span<const std::byte> payload, std::span<float> values) const override;
  std::span<float> momentum() override { return inner_->momentum(); }

 private:
  struct Contexts;
  // The inner payload: `payload` itself, or unpacked to scratch memory; empty when it is damaged.
  std::span<const std::byte> inner_payload(std::span<const std::byte> payload) const;

  const CodecId id_;
  const std::unique_ptr<Codec> inner_;
  const std::unique_ptr<Contexts> contexts_;
  std::unique_ptr<std::byte[]> scratch_;
  const size_t scratch_bytes_;
};

}  // namespace gradbus
