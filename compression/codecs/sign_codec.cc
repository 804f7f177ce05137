#include "compression/codecs/sign_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/check.h"
#include "compression/kernels/vector/compensate.h"
#include "compression/payload.h"

namespace gradbus {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr SignLevels kNotFinite{kNaN, kNaN};

size_t whole_words(size_t block) {
  const size_t most = kPartitionElementsMax;
  return block == 0 ? most : std::min(sign_words(block) * 64, most);
}

float mean(double sum, uint64_t elements) {
  return elements == 0 ? 0 : static_cast<float>(sum / static_cast<double>(elements));
}

SignBlock block_of(const EncodeInput& input, size_t first, size_t count) {
  SignBlock block{.decay = input.decay, .count = count};
  if (!input.gradient.empty()) block.gradient = input.gradient.data() + first;
  if (!input.residual.empty()) block.kept = input.residual.data() + first;
  return block;
}

}  // namespace

SignCodec::SignCodec(CodecId id, Level level, size_t block, float step)
    : id_(id), level_(level), block_(whole_words(block)), step_(step) {}

size_t SignCodec::words_offset(size_t count) const {
  return kPayloadHeaderBytes + blocks(count) * level_bytes();
}

size_t SignCodec::payload_bytes_max(size_t count) const {
  return words_offset(count) + sign_words(count) * 8;
}

SignLevels SignCodec::load_levels(std::span<const std::byte> payload, size_t block) const {
  const std::byte* from = payload.data() + kPayloadHeaderBytes + block * level_bytes();
  const auto level = load_field<float>(from);
  if (level_ != Level::kTwoMeans) return {-level, level};
  return {level, load_field<float>(from + sizeof(float))};
}

void SignCodec::store_levels(std::span<std::byte> payload, size_t block, SignLevels levels) const {
  std::byte* to = payload.data() + kPayloadHeaderBytes + block * level_bytes();
  if (level_ != Level::kTwoMeans) return store_field(to, levels.rest);
  store_field(to, levels.below);
  store_field(to + sizeof(float), levels.rest);
}

SignLevels SignCodec::levels_of(const SignSums& sums, size_t count) const {
  if (!sums.finite()) return kNotFinite;
  if (level_ == Level::kStep) return {-step_, step_};
  if (level_ == Level::kTwoMeans)
    return {mean(sums.below, sums.negatives), mean(sums.rest, count - sums.negatives)};
  const float level = mean(sums.rest - sums.below, count);
  return {-level, level};
}

SignLevels SignCodec::encode_block(const EncodeInput& input, size_t first, size_t count,
                                   std::byte* words) {
  const SignBlock block = block_of(input, first, count);
  const SignSums sums = pack_signs(block, words);
  const SignLevels levels = levels_of(sums, count);
  if (sums.finite() && !input.residual.empty())
    keep_rest(block, levels, input.residual.data() + first);
  return levels;
}

size_t SignCodec::encode(const EncodeInput& input, std::span<std::byte> payload) {
  const size_t count = input.count();
  const size_t bytes = payload_bytes_max(count);
  GRADBUS_CHECK(payload.size() >= bytes && count <= kPartitionElementsMax);
  PayloadHeader header{.codec = static_cast<uint8_t>(id_)};
  header.count = header.entries = static_cast<uint32_t>(count);
  header.bytes = static_cast<uint32_t>(bytes - kPayloadHeaderBytes);
  store_field(payload.data(), header);
  std::byte* words = payload.data() + words_offset(count);
  for (size_t first = 0; first < count; first += block_) {
    const size_t block = std::min(block_, count - first);
    store_levels(payload, first / block_, encode_block(input, first, block, words + first / 8));
  }
  return bytes;
}

bool SignCodec::are_possible(SignLevels levels) const {
  if (std::isnan(levels.below) && std::isnan(levels.rest)) return true;
  if (level_ == Level::kStep && levels.rest != step_) return false;
  return levels.below <= 0 && levels.rest >= 0 && std::isfinite(levels.below) &&
         std::isfinite(levels.rest);
}

Status SignCodec::check(std::span<const std::byte> payload, size_t count) const {
  GRADBUS_RETURN_IF_ERROR(check_payload_header(payload, id_, count));
  const PayloadHeader header = payload_header(payload);
  if (header.flags != 0) return refuse_payload(id_, "flags", header.flags, "0");
  if (header.detail != 0) return refuse_payload(id_, "detail", header.detail, "0");
  if (header.entries != count) return refuse_payload(id_, "entries", header.entries, "count");
  if (payload.size() != payload_bytes_max(count))
    return refuse_payload(id_, "bytes", header.bytes, "those of its blocks and words");
  for (size_t block = 0; block < blocks(count); ++block)
    if (!are_possible(load_levels(payload, block)))
      return refuse_payload(id_, "levels", block, "blocks with levels of this codec");
  const size_t used = count % 64;
  if (used != 0 && load_field<uint64_t>(&payload[payload.size() - 8]) >> used != 0)
    return refuse_payload(id_, "signs", count, "no bits past count");
  return {};
}

template <typename Work>
void SignCodec::for_each_block(std::span<const std::byte> payload, size_t count, float scale,
                               Work work) const {
  const std::byte* words = payload.data() + words_offset(count);
  for (size_t first = 0; first < count; first += block_) {
    const SignLevels levels = load_levels(payload, first / block_);
    work(words + first / 8, first, std::min(block_, count - first),
         SignLevels{scale * levels.below, scale * levels.rest});
  }
}

void SignCodec::accumulate(std::span<const std::byte> payload, float scale,
                           std::span<float> sum) const {
  for_each_block(payload, sum.size(), scale,
                 [&](const std::byte* words, size_t first, size_t count, SignLevels levels) {
                   add_signs(words, count, levels, sum.data() + first);
                 });
}

void SignCodec::decode(std::span<const std::byte> payload, float scale,
                       std::span<float> values) const {
  for_each_block(payload, values.size(), scale,
                 [&](const std::byte* words, size_t first, size_t count, SignLevels levels) {
                   put_signs(words, count, levels, values.data() + first);
                 });
}

// ---- signum

Signum::Signum(float beta, float step, size_t count_max)
    : SignCodec(CodecId::kSignum, Level::kStep, kSignBlockElements, step),
      beta_(beta),
      momentum_(count_max),
      scratch_(std::min(count_max, kSignBlockElements)) {}

// v of a whole block, which is longer than compensate() allows.
const float* Signum::compensated(const EncodeInput& input, size_t first, size_t count) {
  if (input.residual.empty()) return input.gradient.data() + first;
  for (size_t i = 0; i < count; i += kBlockElements)
    compensate(input, first + i, std::min(kBlockElements, count - i), scratch_.data() + i);
  return scratch_.data();
}

SignLevels Signum::encode_block(const EncodeInput& input, size_t first, size_t count,
                                std::byte* words) {
  GRADBUS_CHECK(first + count <= momentum_.size());
  float* momentum = momentum_.data() + first;
  const float* v = compensated(input, first, count);
  const SignBlock block{.gradient = v, .kept = momentum, .decay = beta_, .count = count};
  const SignSums sums = pack_signs(block, words);
  const SignLevels levels = levels_of(sums, count);
  if (!sums.finite()) return levels;
  keep_rest(block, {}, momentum);  // subtracts nothing: m itself
  if (input.residual.empty()) return levels;
  float* residual = input.residual.data() + first;
  std::copy(v, v + count, residual);
  add_signs(words, count, {-levels.below, -levels.rest}, residual);
  return levels;
}

}  // namespace gradbus
