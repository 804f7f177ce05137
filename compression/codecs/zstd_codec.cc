#include "compression/codecs/zstd_codec.h"

#define ZSTD_STATIC_LINKING_ONLY  // contexts in caller's memory: nothing is allocated later
#include <zstd.h>

#include <algorithm>
#include <vector>

#include "common/check.h"
#include "compression/payload.h"

namespace gradbus {
namespace {

constexpr int kLevel = 1;

bool is_packed(std::span<const std::byte> payload) {
  return (payload_header(payload).flags & kPayloadZstd) != 0;
}

}  // namespace

struct ZstdCodec::Contexts {
  // Static contexts need memory with 8-byte alignment.
  std::vector<uint64_t> encoder_memory =
      std::vector<uint64_t>(ZSTD_estimateCCtxSize(kLevel) / 8 + 1);
  std::vector<uint64_t> decoder_memory = std::vector<uint64_t>(ZSTD_estimateDCtxSize() / 8 + 1);
  ZSTD_CCtx* encoder = ZSTD_initStaticCCtx(encoder_memory.data(), encoder_memory.size() * 8);
  ZSTD_DCtx* decoder = ZSTD_initStaticDCtx(decoder_memory.data(), decoder_memory.size() * 8);
};

ZstdCodec::ZstdCodec(CodecId id, std::unique_ptr<Codec> inner, size_t count_max)
    : id_(id),
      inner_(std::move(inner)),
      contexts_(std::make_unique<Contexts>()),
      scratch_(new std::byte[inner_->payload_bytes_max(count_max)]),
      scratch_bytes_(inner_->payload_bytes_max(count_max)) {
  GRADBUS_CHECK(contexts_->encoder != nullptr && contexts_->decoder != nullptr);
}

ZstdCodec::~ZstdCodec() = default;

size_t ZstdCodec::payload_bytes_max(size_t count) const { return inner_->payload_bytes_max(count); }

size_t ZstdCodec::encode(const EncodeInput& input, std::span<std::byte> payload) {
  const size_t bytes = inner_->encode(input, {scratch_.get(), scratch_bytes_});
  const std::span<std::byte> body = payload.subspan(kPayloadHeaderBytes);
  const size_t room = std::min(body.size(), bytes - kPayloadHeaderBytes);
  const size_t packed =
      ZSTD_compressCCtx(contexts_->encoder, body.data(), room, scratch_.get(), bytes, kLevel);
  if (ZSTD_isError(packed) != 0 || packed >= room) {
    std::copy_n(scratch_.get(), bytes, payload.data());
    return bytes;
  }
  PayloadHeader header = payload_header({scratch_.get(), bytes});
  header.flags = kPayloadZstd;
  header.bytes = static_cast<uint32_t>(packed);
  store_field(payload.data(), header);
  return kPayloadHeaderBytes + packed;
}

std::span<const std::byte> ZstdCodec::inner_payload(std::span<const std::byte> payload) const {
  if (!is_packed(payload)) return payload;
  const std::span<const std::byte> body = payload_body(payload);
  const size_t bytes = ZSTD_decompressDCtx(contexts_->decoder, scratch_.get(), scratch_bytes_,
                                           body.data(), body.size());
  if (ZSTD_isError(bytes) != 0) return {};
  return {scratch_.get(), bytes};
}

Status ZstdCodec::check(std::span<const std::byte> payload, size_t count) const {
  if (payload.size() < kPayloadHeaderBytes || !is_packed(payload))
    return inner_->check(payload, count);
  GRADBUS_RETURN_IF_ERROR(check_payload_header(payload, id_, count));
  const PayloadHeader header = payload_header(payload);
  if (header.flags != kPayloadZstd) return refuse_payload(id_, "flags", header.flags, "64 alone");
  const std::span<const std::byte> inner = inner_payload(payload);
  if (inner.size() < kPayloadHeaderBytes || is_packed(inner))
    return refuse_payload(id_, "body", header.bytes, "bytes of a Zstandard frame of a payload");
  GRADBUS_RETURN_IF_ERROR(inner_->check(inner, count));
  const PayloadHeader packed = payload_header(inner);
  if (packed.entries != header.entries || packed.detail != header.detail)
    return refuse_payload(id_, "entries", header.entries, "the packed payload's");
  return {};
}

void ZstdCodec::accumulate(std::span<const std::byte> payload, float scale,
                           std::span<float> sum) const {
  inner_->accumulate(inner_payload(payload), scale, sum);
}

void ZstdCodec::decode(std::span<const std::byte> payload, float scale,
                       std::span<float> values) const {
  inner_->decode(inner_payload(payload), scale, values);
}

void ZstdCodec::clear_sent(std::span<const std::byte> payload, std::span<float> values) const {
  inner_->clear_sent(inner_payload(payload), values);
}

}  // namespace gradbus
