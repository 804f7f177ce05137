// The registry rows of fp8, int8, int4, qsgd, terngrad and natural: options of BucketQuantizer.
#include <cmath>

#include "compression/codecs/bucket_quantizer.h"
#include "compression/registry.h"

namespace gradbus {
namespace {

CodecOption bucket_option(std::string_view name, std::string_view default_text, double min) {
  return {.name = name,
          .default_text = default_text,
          .min = min,
          .max = 1048576,
          .sentence =
              "elements that share a scale, rounded up to a multiple of 32; 0, where it is "
              "allowed: the whole partition (more than 2048 are read twice)",
          .whole = true};
}

CodecOption rounding_option() {
  return {.name = "rounding",
          .default_text = "nearest",
          .choices = {"nearest", "stochastic"},
          .sentence = "stochastic is unbiased, nearest is closer"};
}

size_t size_option(const CodecOptions& options, std::string_view name) {
  return static_cast<size_t>(options.number(name));
}

// Let n elements share a bound B and be rounded at random to multiples of B / s. Then their squared
// errors add up to at most n (B / 2s)^2 in the mean. B^2 is at most the sum of their squares,
// whether B is the largest element or the norm. `elements` 0 means the whole partition.
bool contracts_at_random(double elements, double levels) {
  const double shared = std::ceil(elements / 32) * 32;
  return shared > 0 && shared < 4 * levels * levels;
}

template <uint32_t kLevels>
bool int_contracts(const CodecOptions& options) {
  return options.text("rounding") == "nearest" ||
         contracts_at_random(options.number("block"), kLevels);
}

bool qsgd_contracts(const CodecOptions& options) {
  return contracts_at_random(options.number("bucket"), options.number("levels"));
}

std::unique_ptr<Codec> make_fp8(const CodecOptions& options, const CodecShape&) {
  const bool e4m3 = options.text("format") == "e4m3";
  return std::make_unique<BucketQuantizer>(
      QuantizerOptions{.id = CodecId::kFp8,
                       .detail = static_cast<uint8_t>(e4m3 ? 0 : 1),
                       .code = {.kind = e4m3 ? CodeKind::kE4m3 : CodeKind::kE5m2},
                       .top = e4m3 ? 448.0F : 57344.0F,
                       .bucket = size_option(options, "block")});
}

// The detail field contains `levels`, the largest level.
std::unique_ptr<Codec> make_levels(QuantizerOptions quantizer, uint32_t bits, uint32_t levels) {
  quantizer.detail = static_cast<uint8_t>(levels);
  quantizer.code.bits = bits;
  quantizer.code.levels = levels;
  quantizer.top = static_cast<float>(levels);
  return std::make_unique<BucketQuantizer>(quantizer);
}

template <CodecId kId, uint32_t kBits, uint32_t kLevels>
std::unique_ptr<Codec> make_int(const CodecOptions& options, const CodecShape&) {
  QuantizerOptions quantizer{.id = kId, .bucket = size_option(options, "block")};
  quantizer.code.stochastic = options.text("rounding") == "stochastic";
  return make_levels(quantizer, kBits, kLevels);
}

std::unique_ptr<Codec> make_qsgd(const CodecOptions& options, const CodecShape&) {
  const auto levels = static_cast<uint32_t>(options.number("levels"));
  QuantizerOptions quantizer{.id = CodecId::kQsgd, .bucket = size_option(options, "bucket")};
  quantizer.code.stochastic = true;
  quantizer.bound = options.text("norm") == "l2" ? Bound::kNorm : Bound::kLargest;
  return make_levels(quantizer, levels == 1 ? 2 : levels <= 7 ? 4 : 8, levels);
}

std::unique_ptr<Codec> make_terngrad(const CodecOptions& options, const CodecShape&) {
  QuantizerOptions quantizer{.id = CodecId::kTernGrad, .bucket = size_option(options, "bucket")};
  quantizer.code.stochastic = true;
  quantizer.clip = static_cast<float>(options.number("bound"));
  quantizer.code.clipped = quantizer.clip > 0;
  quantizer.bound = quantizer.clip > 0 ? Bound::kClipped : Bound::kLargest;
  return make_levels(quantizer, 2, 1);
}

std::unique_ptr<Codec> make_natural(const CodecOptions& options, const CodecShape&) {
  return std::make_unique<BucketQuantizer>(
      QuantizerOptions{.id = CodecId::kNatural,
                       .code = {.kind = CodeKind::kNatural, .stochastic = true},
                       .bound = Bound::kPowerOfTwo,
                       .bucket = size_option(options, "bucket")});
}

CodecRow fp8_row() {
  return {.id = CodecId::kFp8,
          .name = "fp8",
          .sentence = "elements as OCP 8-bit floats, rounded to nearest, with a scale per block",
          .options = {{.name = "format",
                       .default_text = "e4m3",
                       .choices = {"e4m3", "e5m2"},
                       .sentence = "bits of exponent and mantissa"},
                      bucket_option("block", "1024", 64)},
          .contracts = always_contracts,
          .make = make_fp8};
}

CodecRow int8_row() {
  return {.id = CodecId::kInt8,
          .name = "int8",
          .sentence = "elements as whole numbers from -127 to 127, with a scale per block",
          .options = {bucket_option("block", "1024", 64), rounding_option()},
          .contracts = int_contracts<127>,
          .make = make_int<CodecId::kInt8, 8, 127>};
}

CodecRow int4_row() {
  return {.id = CodecId::kInt4,
          .name = "int4",
          .sentence = "elements as whole numbers from -7 to 7, two to a byte, a scale per block",
          .traits = {.wants_feedback = true},
          .options = {bucket_option("block", "128", 32), rounding_option()},
          .contracts = int_contracts<7>,
          .make = make_int<CodecId::kInt4, 4, 7>};
}

CodecRow qsgd_row() {
  return {.id = CodecId::kQsgd,
          .name = "qsgd",
          .sentence =
              "elements as whole levels of a bucket's norm, rounded at random (Alistarh et "
              "al. 2017)",
          .traits = {.unbiased = true},
          .options = {{.name = "levels",
                       .default_text = "127",
                       .min = 1,
                       .max = 127,
                       .sentence = "besides 0, of each sign: 1 takes 2 bits an element, up to 7 "
                                   "take 4, more take 8",
                       .whole = true},
                      {.name = "norm",
                       .default_text = "l2",
                       .choices = {"l2", "max"},
                       .sentence = "of a bucket; max: less noise, l2: more zeros"},
                      bucket_option("bucket", "512", 0)},
          .contracts = qsgd_contracts,
          .make = make_qsgd};
}

CodecRow terngrad_row() {
  return {.id = CodecId::kTernGrad,
          .name = "terngrad",
          .sentence = "-1, 0 or 1 times a bucket's bound at random, two bits (Wen et al. 2017)",
          .options = {{.name = "bound",
                       .default_text = "2.5",
                       .min = 0,
                       .max = 1e6,
                       .sentence = "bounds elements by this many root mean squares of the bucket, "
                                   "which is biased; 0: by the largest, which is not"},
                      bucket_option("bucket", "2048", 0)},
          .make = make_terngrad};
}

CodecRow natural_row() {
  return {.id = CodecId::kNatural,
          .name = "natural",
          .sentence = "sign and power of two, rounded at random, 8 bits (Horvath et al. 2019)",
          .traits = {.unbiased = true},
          .options = {bucket_option("bucket", "1024", 0)},
          .contracts = always_contracts,
          .make = make_natural};
}

}  // namespace

std::span<const CodecRow> quantizer_codecs() {
  static const std::vector<CodecRow> rows = [] {
    std::vector<CodecRow> all;
    for (const auto row : {fp8_row, int8_row, int4_row, qsgd_row, terngrad_row, natural_row})
      all.push_back(row());
    return all;
  }();
  return rows;
}

}  // namespace gradbus
