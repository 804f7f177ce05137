// Every codec there is, one row each; tests, `gradbus bench codec` and the documents loop over it.
// Rows live beside their codecs, one table per family.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "compression/codec.h"
#include "compression/spec.h"
#include "proto/numbers.h"

namespace gradbus {

struct CodecTraits {
  bool unbiased = false;        // the mean of decoded(v) over seeds is v
  bool selects = false;         // sends some elements, exactly or rounded, and none of the others
  bool lossless = false;        // decoded(v) is v
  bool wants_feedback = false;  // biased: diverges or stalls without error feedback
  bool whole_unit = false;      // chooses over the whole unit: is not cut into small pieces
  bool needs_matrix = false;    // looks at the tensor's shape
  bool by_rows = false;         // sends whole rows of the tensor seen as a matrix, or none of a row
  bool takes_momentum = false;  // DGC's memory leaves its momentum to the codec (EncodeInput)
};

// What a codec is made for.
struct CodecShape {
  size_t count_max = 0;  // elements of the longest unit
  size_t rows = 1;       // of the tensor seen as a matrix: its first dimension; needs_matrix only
  size_t columns = 0;    // rows * columns = count, but for parts of by_rows; 0: a vector
};

struct CodecRow {
  CodecId id = CodecId::kDense;
  std::string_view name;
  std::string_view sentence = {};  // what it sends, and the source
  CodecTraits traits = {};
  std::vector<CodecOption> options = {};
  // What an owner encodes the sum of payloads with, where that is another codec: it takes the same
  // options. "": this one.
  std::string_view owner = {};
  // With these options |v - decoded(v)| is at most |v|, and below it in the mean over seeds unless
  // nothing of v is worth sending. So what is sent again and again of a difference that shrinks by
  // it ends at none: such a codec can carry parameters (shard/coded_parameters.h). Null: never.
  bool (*contracts)(const CodecOptions&) = nullptr;
  // One of the two, or both where payloads can also be added in flight; null: cannot.
  std::unique_ptr<Codec> (*make)(const CodecOptions&, const CodecShape&) = nullptr;
  std::unique_ptr<LinearCodec> (*make_linear)(const CodecOptions&, const CodecShape&) = nullptr;
};

// In order of CodecId.
std::span<const CodecRow* const> codec_rows();
const CodecRow* find_codec(std::string_view name);
const CodecRow* find_codec(CodecId id);
std::string_view codec_name(CodecId id);  // "?" for an unknown one

// row.make() with what the options ask for besides: entropy=zstd. The row has a make().
std::unique_ptr<Codec> make_codec(const CodecRow& row, const CodecOptions& options,
                                  const CodecShape& shape);
std::unique_ptr<Codec> make_codec(const CompressionSpec& spec, const CodecShape& shape);
// Payloads of this spec can be summed on their way, as dense vectors.
bool is_linear(const CompressionSpec& spec);
// ... or merged, as entries.
bool is_mergeable(const CompressionSpec& spec);
// What CodecRow::contracts says.
bool contracts(const CompressionSpec& spec);
// Of a codec by_rows: elements of a row of a tensor of so many columns; 0: nobody says. Of others:
// 0.
uint64_t row_elements(const CompressionSpec& spec, uint64_t columns);

// ---- the families, in codecs/
std::span<const CodecRow> dense_codecs();      // none fp16 bf16
std::span<const CodecRow> quantizer_codecs();  // fp8 int8 int4 qsgd terngrad natural
std::span<const CodecRow> sparse_codecs();     // topk dgc randk threshold
std::span<const CodecRow> sign_codecs();       // signsgd efsignsgd onebit signum
std::span<const CodecRow> sketch_codecs();     // blocktopk powersgd
std::span<const CodecRow> row_codecs();        // rows

}  // namespace gradbus
