#include "worker_agent/compressed/second_encoding.h"

namespace gradbus {

std::unique_ptr<Codec> second_codec(const CompressionSpec& spec, const CodecShape& shape) {
  const CodecRow& row = *spec.codec;
  return make_codec(row.owner.empty() ? row : *find_codec(row.owner), spec.options, shape);
}

MemoryOptions second_memory(const CompressionSpec& spec, uint32_t agents) {
  MemoryOptions options = memory_options(spec, agents);
  if (options.kind == MemoryKind::kDgc) options.kind = MemoryKind::kResidual;
  return options;
}

}  // namespace gradbus
