// All codecs, one row each. Tests, `gradbus bench codec` and the documents loop over the rows. Each
// family of codecs has one table, next to its codecs.
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
  // Selects from the whole partition, which is therefore not cut into small pieces.
  bool whole_partition = false;
  bool needs_matrix = false;  // uses the tensor's shape
  bool by_rows = false;       // sends a row of the tensor as a matrix completely or not at all
  // Decodes to plus or minus the option `step`: the mean of agents' payloads is one of votes.
  bool votes = false;
  bool has_state = false;       // besides error feedback: what it sends depends on earlier rounds
  bool takes_momentum = false;  // the codec accumulates DGC's momentum (EncodeInput)
};

// The partitions that a codec is made for.
struct CodecShape {
  size_t count_max = 0;  // elements of the longest partition
  size_t rows = 1;       // of the tensor seen as a matrix: its first dimension; needs_matrix only
  size_t columns = 0;    // rows * columns = count, but for parts of by_rows; 0: a vector
};

struct CodecRow {
  CodecId id = CodecId::kDense;
  std::string_view name;
  std::string_view sentence = {};  // what it sends, and the source
  CodecTraits traits = {};
  std::vector<CodecOption> options = {};
  // The codec with which an owner encodes the sum of payloads, if it is another one. It has the
  // same options. "": this codec.
  std::string_view owner = {};
  // Whether, with these options, |v - decoded(v)| is at most |v|, and less in the mean over seeds
  // unless v is negligible. Then a difference that is sent again and again shrinks to zero, so the
  // codec can carry parameters (server/parameter_server/coded_parameters.h). Null: never.
  bool (*contracts)(const CodecOptions&) = nullptr;
  // One of the two, or both if an all-reduce can also add the payloads; null: not supported.
  std::unique_ptr<Codec> (*make)(const CodecOptions&, const CodecShape&) = nullptr;
  std::unique_ptr<LinearCodec> (*make_linear)(const CodecOptions&, const CodecShape&) = nullptr;
};

// In order of CodecId.
std::span<const CodecRow* const> codec_rows();
const CodecRow* find_codec(std::string_view name);
const CodecRow* find_codec(CodecId id);
std::string_view codec_name(CodecId id);  // "?" for an unknown one

// Calls row.make() and adds the wrapper that the options request: entropy=zstd. The row must have
// make().
std::unique_ptr<Codec> make_codec(const CodecRow& row, const CodecOptions& options,
                                  const CodecShape& shape);
std::unique_ptr<Codec> make_codec(const CompressionSpec& spec, const CodecShape& shape);
// An all-reduce can add the payloads of this spec, as dense vectors.
bool is_linear(const CompressionSpec& spec);
// Agents can merge the payloads of this spec, as entries.
bool is_mergeable(const CompressionSpec& spec);
// A CodecRow::contracts of codecs that contract with every option.
inline bool always_contracts(const CodecOptions&) { return true; }

// CodecRow::contracts for this spec.
bool contracts(const CompressionSpec& spec);
// For a codec by_rows: elements per row of a tensor with `columns` columns; 0: unknown. For others
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
