#include "compression/registry.h"

#include <algorithm>

#include "compression/codecs/zstd_codec.h"

namespace gradbus {

std::span<const CodecRow* const> codec_rows() {
  static const std::vector<const CodecRow*> rows = [] {
    std::vector<const CodecRow*> all;
    for (const auto family : {dense_codecs(), quantizer_codecs(), sparse_codecs(), sign_codecs(),
                              sketch_codecs(), row_codecs()})
      for (const CodecRow& row : family) all.push_back(&row);
    std::sort(all.begin(), all.end(), [](const auto* a, const auto* b) { return a->id < b->id; });
    return all;
  }();
  return rows;
}

const CodecRow* find_codec(std::string_view name) {
  for (const CodecRow* row : codec_rows())
    if (row->name == name) return row;
  return nullptr;
}

const CodecRow* find_codec(CodecId id) {
  for (const CodecRow* row : codec_rows())
    if (row->id == id) return row;
  return nullptr;
}

std::string_view codec_name(CodecId id) {
  const CodecRow* row = find_codec(id);
  return row == nullptr ? "?" : row->name;
}

std::unique_ptr<Codec> make_codec(const CodecRow& row, const CodecOptions& options,
                                  const CodecShape& shape) {
  std::unique_ptr<Codec> codec = row.make(options, shape);
  if (options.text("entropy") == "none") return codec;
  return std::make_unique<ZstdCodec>(row.id, std::move(codec), shape.count_max);
}

std::unique_ptr<Codec> make_codec(const CompressionSpec& spec, const CodecShape& shape) {
  return make_codec(*spec.codec, spec.options, shape);
}

bool is_linear(const CompressionSpec& spec) {
  return spec.codec->make_linear != nullptr && spec.options.text("entropy") == "none";
}

bool is_mergeable(const CompressionSpec& spec) {
  return spec.codec->traits.selects && spec.codec->make_linear == nullptr &&
         spec.options.text("entropy") == "none";
}

bool contracts(const CompressionSpec& spec) {
  return spec.codec->contracts != nullptr && spec.codec->contracts(spec.options);
}

uint64_t row_elements(const CompressionSpec& spec, uint64_t columns) {
  if (!spec.codec->traits.by_rows) return 0;
  const auto asked = static_cast<uint64_t>(spec.options.number("dim"));
  return asked > 0 ? asked : columns;
}

}  // namespace gradbus
