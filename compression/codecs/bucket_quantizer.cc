#include "compression/codecs/bucket_quantizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "common/check.h"
#include "compression/codecs/bucket_scale.h"
#include "compression/codecs/every_element.h"
#include "compression/kernels/quantize/pack.h"
#include "compression/kernels/vector/compensate.h"
#include "compression/kernels/vector/prefetch.h"
#include "compression/kernels/vector/statistics.h"
#include "compression/payload.h"

namespace gradbus {
namespace {

constexpr size_t kBlockBuckets = kBlockElements / kBucketGranule;
// With a residual v, the gradient and residual of one block and of the next share 32 KiB of L1.
constexpr size_t kKeptBlock = 512;
// Used when one block is encoded while the block after the next is read. L1 then holds all three
// blocks with their residuals: int4 takes 1.1 times as long with 640 and 1.4 with 1024.
constexpr size_t kShortBlock = 1024;
constexpr size_t kShortKeptBlock = 384;
constexpr uint32_t kLargestStep = 0x7f7fffff;  // FLT_MAX
constexpr uint32_t kNanStep = 0x7fc00000;
static_assert(kBlockElements % kBucketGranule == 0, "pieces begin at whole bytes of codes");

uint8_t* as_bytes(std::byte* bytes) { return reinterpret_cast<uint8_t*>(bytes); }
const uint8_t* as_bytes(const std::byte* bytes) { return reinterpret_cast<const uint8_t*>(bytes); }

QuantizerOptions with_whole_granules(QuantizerOptions options) {
  const size_t bucket = options.bucket == 0 ? kPartitionElementsMax : options.bucket;
  options.bucket = (bucket + kBucketGranule - 1) / kBucketGranule * kBucketGranule;
  return options;
}

// Whether a block is encoded while a later one is read. That helps where the kernels do not
// prefetch. Where they prefetch, it helps only a short encoder, which would leave the memory idle.
// On Zen 3, int8 and int4 without a residual take 0.8 of the time. Stochastic codes take up to 1.2
// times as long, and codes with a residual up to 1.5 times.
bool overlaps(const QuantizerOptions& options, bool kept) {
  const bool brief = options.code.kind == CodeKind::kLevels && !options.code.stochastic;
  return !kPrefetches || (brief && !kept);
}

// As many whole buckets as fit into `elements`, but at least one.
size_t block_elements(size_t bucket, size_t elements) {
  return bucket > elements ? bucket : elements / bucket * bucket;
}

// A block that is being encoded. v is used only with a residual.
struct BlockInMaking {
  std::array<uint32_t, kBlockBuckets> largest;
  std::array<double, kBlockBuckets> squares;
  std::array<BucketScale, kBlockBuckets> scales;
  alignas(64) std::array<float, kBlockElements> v;
};

NextBlockStatistics next_block_statistics(const QuantizerOptions& options, const EncodeInput& input,
                                          size_t first, size_t count, BlockInMaking& to) {
  return {.run = {.gradient = &input.gradient[first],
                  .kept = input.residual.empty() ? nullptr : &input.residual[first],
                  .decay = input.decay,
                  .count = count,
                  .bucket = options.bucket,
                  .v = to.v.data()},
          .largest = asks_for_largest(options) ? to.largest.data() : nullptr,
          .squares = asks_for_squares(options) ? to.squares.data() : nullptr};
}

void make_scales(const QuantizerOptions& options, size_t buckets, const NextBlockStatistics& taken,
                 BucketScale* scales) {
  for (size_t b = 0; b < buckets; ++b)
    scales[b] = scale_of(options, {.largest = taken.largest == nullptr ? 0 : taken.largest[b],
                                   .squares = taken.squares == nullptr ? 0 : taken.squares[b],
                                   .count = options.bucket});
}

}  // namespace

BucketQuantizer::BucketQuantizer(const QuantizerOptions& options)
    : options_(with_whole_granules(options)),
      block_(block_elements(options_.bucket,
                            overlaps(options_, false) ? kShortBlock : kBlockElements)),
      kept_block_(block_elements(options_.bucket,
                                 overlaps(options_, true) ? kShortKeptBlock : kKeptBlock)) {}

size_t BucketQuantizer::code_offset(size_t count, size_t at) const {
  return buckets(count) * sizeof(float) + packed_bytes(options_.code.bits, at);
}

size_t BucketQuantizer::body_bytes(size_t count) const { return code_offset(count, count); }

size_t BucketQuantizer::payload_bytes_max(size_t count) const {
  return kPayloadHeaderBytes + body_bytes(count);
}

size_t BucketQuantizer::encode(const EncodeInput& input, std::span<std::byte> payload) {
  const size_t count = input.count();
  const size_t bytes = body_bytes(count);
  store_every_element_header(options_.id, options_.detail, count, bytes, payload);
  const std::span<std::byte> body = payload.subspan(kPayloadHeaderBytes, bytes);
  const bool kept = !input.residual.empty();
  const size_t block = kept ? kept_block_ : block_;
  const bool ahead = overlaps(options_, kept) && !input.gradient.empty() &&
                     block <= (kept ? kShortKeptBlock : kBlockElements);
  for (size_t first = ahead ? encode_whole_blocks(input, block, body) : 0; first < count;
       first += block)
    encode_block(input, first, std::min(block, count - first), body);
  return kPayloadHeaderBytes + bytes;
}

// Encoding a block is arithmetic; reading the block after the next waits for memory. Doing both at
// once also has the scales of the next block ready in time, which are a chain of roots and
// divisions.
size_t BucketQuantizer::encode_whole_blocks(const EncodeInput& input, size_t block,
                                            std::span<std::byte> body) const {
  constexpr size_t kTurns = 3;
  const size_t blocks = input.count() / block;
  const size_t buckets = block / options_.bucket;
  std::array<BlockInMaking, kTurns> ring;
  const auto ahead_at = [&](size_t i) {
    return next_block_statistics(options_, input, i * block, block, ring[i % kTurns]);
  };
  for (size_t i = 0; i < std::min(kTurns - 1, blocks); ++i) {
    const NextBlockStatistics taken = ahead_at(i);
    take_statistics(taken.run, taken.largest, taken.squares);
    make_scales(options_, buckets, taken, ring[i].scales.data());
  }
  for (size_t i = 0; i < blocks; ++i) {
    const size_t first = i * block;
    const BucketScale* scales = ring[i % kTurns].scales.data();
    const float* v = input.residual.empty() ? &input.gradient[first] : ring[i % kTurns].v.data();
    const bool takes = i + kTurns - 1 < blocks;
    const NextBlockStatistics taken = takes ? ahead_at(i + kTurns - 1) : NextBlockStatistics{};
    store_steps(first, block, scales, body);
    encode_piece(input, first, {v, block}, scales, body.data() + code_offset(input.count(), first),
                 takes ? &taken : nullptr);
    if (takes) make_scales(options_, buckets, taken, ring[(i + kTurns - 1) % kTurns].scales.data());
  }
  return blocks * block;
}

void BucketQuantizer::store_steps(size_t first, size_t count, const BucketScale* scales,
                                  std::span<std::byte> body) const {
  std::byte* step = body.data() + first / options_.bucket * sizeof(float);
  for (size_t at = 0, b = 0; at < count; at += options_.bucket, step += sizeof(float))
    store_field(step, scales[b++].step);
}

void BucketQuantizer::encode_block(const EncodeInput& input, size_t first, size_t count,
                                   std::span<std::byte> body) const {
  alignas(64) std::array<float, kBlockElements> scratch;
  std::array<BucketScale, kBlockBuckets> scales;
  const float* values = take_in(input, first, count, scratch.data(), scales.data());
  store_steps(first, count, scales.data(), body);
  for (size_t at = 0; at < count; at += kBlockElements) {
    const size_t n = std::min(kBlockElements, count - at);
    if (count > kBlockElements) values = compensate(input, first + at, n, scratch.data());
    std::byte* packed = body.data() + code_offset(input.count(), first + at);
    encode_piece(input, first + at, {values, n}, scales.data(), packed);
  }
}

const float* BucketQuantizer::take_in(const EncodeInput& input, size_t first, size_t count,
                                      float* scratch, BucketScale* scales) const {
  std::array<uint32_t, kBlockBuckets> largest_of;
  std::array<double, kBlockBuckets> squares_of;
  uint32_t* const largest = asks_for_largest(options_) ? largest_of.data() : nullptr;
  double* const squares = asks_for_squares(options_) ? squares_of.data() : nullptr;
  BucketStatistics bucket;
  const auto join = [&](size_t b) {
    if (largest != nullptr) bucket.largest = std::max(bucket.largest, largest[b]);
    if (squares != nullptr) bucket.squares += squares[b];
  };
  StatisticsRun run{.gradient = input.gradient.empty() ? nullptr : &input.gradient[first],
                    .kept = input.residual.empty() ? nullptr : &input.residual[first],
                    .decay = input.decay,
                    .count = std::min(count, kBlockElements),
                    .bucket = options_.bucket,
                    .v = scratch};
  take_statistics(run, largest, squares);
  for (size_t at = kBlockElements; at < count; at += kBlockElements) {
    join(0);
    if (run.gradient != nullptr) run.gradient += kBlockElements;
    if (run.kept != nullptr) run.kept += kBlockElements;
    run.count = std::min(kBlockElements, count - at);
    take_statistics(run, largest, squares);
  }
  for (size_t at = 0, b = 0; at < count; at += options_.bucket, ++b) {
    join(b);
    bucket.count = std::min(options_.bucket, count - at);
    scales[b] = scale_of(options_, bucket);
    bucket = {};
  }
  return run.kept == nullptr ? run.gradient : scratch;
}

void BucketQuantizer::encode_piece(const EncodeInput& input, size_t first,
                                   std::span<const float> values, const BucketScale* scales,
                                   std::byte* packed, const NextBlockStatistics* taken) const {
  std::array<uint8_t, kBlockElements> codes;
  const bool whole_bytes = options_.code.bits == 8;
  QuantizePiece piece{.values = values.data(),
                      .count = values.size(),
                      .bucket = options_.bucket,
                      .scales = scales,
                      .seed = input.seed,
                      .first = static_cast<uint32_t>(first),
                      .codes = whole_bytes ? as_bytes(packed) : codes.data(),
                      .residual = input.residual.empty() ? nullptr : input.residual.data() + first};
  const size_t ahead = first + values.size();
  if (kPrefetches && taken == nullptr && ahead + values.size() <= input.count()) {
    if (!input.gradient.empty()) piece.soon[0] = input.gradient.data() + ahead;
    if (!input.residual.empty()) piece.soon[1] = input.residual.data() + ahead;
  }
  if (taken == nullptr)
    quantize(options_.code, piece);
  else
    quantize(options_.code, piece, *taken);
  if (!whole_bytes) pack_codes(options_.code.bits, codes.data(), values.size(), as_bytes(packed));
}

Status BucketQuantizer::check(std::span<const std::byte> payload, size_t count) const {
  GRADBUS_RETURN_IF_ERROR(
      check_every_element_header(payload, options_.id, options_.detail, count, body_bytes(count)));
  const std::span<const std::byte> body = payload_body(payload);
  for (size_t b = 0; b < buckets(count); ++b) {
    const auto bits = load_field<uint32_t>(&body[b * sizeof(float)]);
    if (bits > kLargestStep && bits != kNanStep)
      return refuse_payload(options_.id, "step", bits, "bits of 0, a positive number or NaN");
  }
  const size_t used = count * options_.code.bits % 8;
  if (used != 0 && std::to_integer<uint32_t>(body.back()) >> used != 0)
    return refuse_payload(options_.id, "codes", std::to_integer<uint32_t>(body.back()),
                          "bits after the last element to be 0");
  return {};
}

void BucketQuantizer::accumulate(std::span<const std::byte> payload, float scale,
                                 std::span<float> sum) const {
  apply(payload, scale, true, sum);
}

void BucketQuantizer::decode(std::span<const std::byte> payload, float scale,
                             std::span<float> values) const {
  apply(payload, scale, false, values);
}

void BucketQuantizer::apply(std::span<const std::byte> payload, float scale, bool add,
                            std::span<float> to) const {
  const std::byte* const body = payload_body(payload).data();
  const size_t count = to.size();
  const size_t piece = std::min(block_, kBlockElements);  // whole buckets, or part of one
  std::array<float, kBlockBuckets> factors;
  for (size_t first = 0; first < count; first += block_) {
    const size_t end = std::min(first + block_, count);
    const std::byte* steps = body + first / options_.bucket * sizeof(float);
    for (size_t b = 0; b < buckets(end - first); ++b)
      factors[b] = scale * load_field<float>(steps + b * sizeof(float));
    for (size_t at = first; at < end; at += piece)
      apply_piece(body + code_offset(count, at), factors.data(), add,
                  to.subspan(at, std::min(piece, end - at)));
  }
}

void BucketQuantizer::apply_piece(const std::byte* packed, const float* factors, bool add,
                                  std::span<float> to) const {
  std::array<uint8_t, kBlockElements> codes;
  const bool whole_bytes = options_.code.bits == 8;
  if (!whole_bytes) unpack_codes(options_.code.bits, as_bytes(packed), to.size(), codes.data());
  dequantize(options_.code, {.codes = whole_bytes ? as_bytes(packed) : codes.data(),
                             .count = to.size(),
                             .bucket = options_.bucket,
                             .factors = factors,
                             .to = to.data(),
                             .add = add});
}

}  // namespace gradbus
