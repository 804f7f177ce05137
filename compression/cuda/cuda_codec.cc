#include "compression/cuda/cuda_codec.h"

#include "compression/codecs/bucket_quantizer.h"
#include "compression/codecs/dense_codec.h"
#include "compression/codecs/sign_codec.h"

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
  return plan;
}

}  // namespace

std::optional<CudaCodec> cuda_codec(const Codec& codec) {
  if (const auto* as = dynamic_cast<const DenseCodec*>(&codec)) return dense(*as);
  if (const auto* as = dynamic_cast<const BucketQuantizer*>(&codec)) return buckets(as->options());
  if (dynamic_cast<const Signum*>(&codec) != nullptr) return std::nullopt;
  if (const auto* as = dynamic_cast<const SignCodec*>(&codec)) return signs(*as);
  return std::nullopt;
}

}  // namespace gradbus
