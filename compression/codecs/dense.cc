#include "compression/codecs/dense_codec.h"
#include "compression/registry.h"

namespace gradbus {
namespace {

template <CodecId kId, DType kType>
std::unique_ptr<Codec> make(const CodecOptions&, const CodecShape&) {
  return std::make_unique<DenseCodec>(kId, kType);
}

template <DType kType>
std::unique_ptr<LinearCodec> make_linear(const CodecOptions&, const CodecShape& shape) {
  return std::make_unique<DenseLinear>(kType, shape.count_max);
}

}  // namespace

std::span<const CodecRow> dense_codecs() {
  static const std::vector<CodecRow> rows = {
      {.id = CodecId::kDense,
       .name = "none",
       .sentence = "elements as they are",
       .traits = {.unbiased = true, .lossless = true},
       .contracts = always_contracts,
       .make = make<CodecId::kDense, DType::kF32>},
      {.id = CodecId::kFp16,
       .name = "fp16",
       .sentence = "elements rounded to f16 (11 bits of precision, up to 65504)",
       .contracts = always_contracts,
       .make = make<CodecId::kFp16, DType::kF16>,
       .make_linear = make_linear<DType::kF16>},
      {.id = CodecId::kBf16,
       .name = "bf16",
       .sentence = "elements rounded to bf16 (8 bits of precision, the range of f32)",
       .contracts = always_contracts,
       .make = make<CodecId::kBf16, DType::kBF16>,
       .make_linear = make_linear<DType::kBF16>},
  };
  return rows;
}

}  // namespace gradbus
