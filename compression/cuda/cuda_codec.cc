#include "compression/cuda/cuda_codec.h"

#include "compression/codecs/bucket_quantizer.h"
#include "compression/codecs/dense_codec.h"
#include "compression/codecs/dgc.h"
#include "compression/codecs/randk.h"
#include "compression/codecs/sign_codec.h"
#include "compression/codecs/threshold.h"
#include "compression/codecs/topk.h"

namespace gradbus {
namespace {

CudaCodec dense(const DenseCodec& codec) {
  CudaCodec plan{.id = static_cast<uint8_t>(codec.id()), .family = CudaFamily::kDense};
  plan.dtype = static_cast<uint8_t>(codec.dtype());
  return plan;
}

CudaCodec buckets(const QuantizerOptions& options) {
  CudaCodec plan{.id = static_cast<uint8_t>(options.id), .detail = options.detail};
  plan.family = CudaFamily::kBuckets;
  plan.kind = static_cast<uint8_t>(options.code.kind);
  plan.bound = static_cast<uint8_t>(options.bound);
  plan.bits = static_cast<uint8_t>(options.code.bits);
  plan.stochastic = options.code.stochastic ? 1 : 0;
  plan.levels = options.code.levels;
  plan.bucket = static_cast<uint32_t>(options.bucket);
  plan.top = options.top;
  plan.clip = options.clip;
  return plan;
}

CudaCodec signs(const SignCodec& codec) {
  CudaCodec plan{.id = static_cast<uint8_t>(codec.id()), .family = CudaFamily::kSigns};
  plan.level = static_cast<uint8_t>(codec.level());
  plan.bucket = static_cast<uint32_t>(codec.block());
  plan.step = codec.step();
  if (const auto* as = dynamic_cast<const Signum*>(&codec)) {
    plan.momentum = 1;
    plan.beta = as->beta();
  }
  return plan;
}

CudaCodec selections(CodecId id, CudaRule rule, WireType wire) {
  CudaCodec plan{.id = static_cast<uint8_t>(id), .family = CudaFamily::kSelections};
  plan.rule = static_cast<uint8_t>(rule);
  plan.wire = static_cast<uint8_t>(wire);
  return plan;
}

std::optional<CudaCodec> selections(const Codec& codec) {
  const auto* as = dynamic_cast<const SparseCodec*>(&codec);
  if (as == nullptr) return std::nullopt;
  const auto plan = [&](CudaRule rule) { return selections(as->id(), rule, as->type()); };
  if (dynamic_cast<const TopK*>(as) != nullptr) return plan(CudaRule::kLargest);
  if (dynamic_cast<const Dgc*>(as) != nullptr) return plan(CudaRule::kSampled);
  if (dynamic_cast<const RandK*>(as) != nullptr) return plan(CudaRule::kDrawn);
  const auto* threshold = dynamic_cast<const Threshold*>(as);
  if (threshold == nullptr) return std::nullopt;
  CudaCodec found = plan(CudaRule::kThreshold);
  found.key = threshold->key();
  return found;
}

CudaChoice drawn(const RandKOptions& options, size_t count, bool has_residual) {
  if (count == 0) return {};
  return {.entries = static_cast<uint32_t>(randk_entries(options, count)),
          .factor = randk_factor(options, count, has_residual)};
}

CudaChoice sampled(const Dgc& codec, size_t count, uint64_t round) {
  if (count == 0) return {};
  const DgcSizes sizes = codec.sizes(count, round);
  return {.entries = static_cast<uint32_t>(sizes.k),
          .samples = static_cast<uint32_t>(sizes.samples),
          .stride = static_cast<uint32_t>(sizes.stride),
          .top = static_cast<uint32_t>(sizes.top),
          .candidates = static_cast<uint32_t>(codec.candidates())};
}

}  // namespace

std::optional<CudaCodec> cuda_codec(const Codec& codec) {
  if (const auto* as = dynamic_cast<const DenseCodec*>(&codec)) return dense(*as);
  if (const auto* as = dynamic_cast<const BucketQuantizer*>(&codec)) return buckets(as->options());
  if (const auto* as = dynamic_cast<const SignCodec*>(&codec)) return signs(*as);
  return selections(codec);
}

std::optional<CudaCodec> cuda_codec(const LinearCodec& codec) {
  if (dynamic_cast<const LinearRandK*>(&codec) == nullptr) return std::nullopt;
  return selections(CodecId::kRandK, CudaRule::kDrawn, WireType::kF32);
}

CudaChoice cuda_choice(const Codec& codec, size_t count, uint64_t round, bool has_residual) {
  if (const auto* as = dynamic_cast<const TopK*>(&codec))
    return {.entries = static_cast<uint32_t>(as->entries(count, round))};
  if (const auto* as = dynamic_cast<const Dgc*>(&codec)) return sampled(*as, count, round);
  if (const auto* as = dynamic_cast<const RandK*>(&codec))
    return drawn(as->options(), count, has_residual);
  if (dynamic_cast<const Threshold*>(&codec) != nullptr)
    return {.entries = static_cast<uint32_t>(count)};
  return {};
}

CudaChoice cuda_choice(const LinearCodec& codec, size_t count, bool has_residual) {
  const auto* as = dynamic_cast<const LinearRandK*>(&codec);
  if (as == nullptr) return {};
  CudaChoice choice = drawn(as->options(), count, has_residual);
  choice.in_flight = 1;
  return choice;
}

// Warm-ups begin with the most entries; of dgc, which samples less the more it sends, with the
// fewest samples.
CudaChoice cuda_choice_max(const Codec& codec, size_t count) {
  CudaChoice most = cuda_choice(codec, count, /*round=*/1, /*has_residual=*/false);
  if (const auto* as = dynamic_cast<const Dgc*>(&codec))
    most.samples = static_cast<uint32_t>(as->samples_max());
  return most;
}

}  // namespace gradbus
