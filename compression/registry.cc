#include "compression/registry.h"

#include <algorithm>

namespace gradbus {

std::span<const CodecRow* const> codec_rows() {
  static const std::vector<const CodecRow*> rows = [] {
    std::vector<const CodecRow*> all;
    for (const auto family :
         {dense_codecs(), quantizer_codecs(), sparse_codecs(), sign_codecs(), sketch_codecs()})
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

}  // namespace gradbus
