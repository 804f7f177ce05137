#include "data_plane/second_encoding.h"

namespace gradbus {

std::unique_ptr<Codec> second_codec(const CompressionSpec& spec, const CodecShape& shape) {
  const CodecRow& row = *spec.codec;
  return make_codec(row.owner.empty() ? row : *find_codec(row.owner), spec.options, shape);
}

ErrorFeedbackOptions second_error_feedback(const CompressionSpec& spec, uint32_t agents) {
  ErrorFeedbackOptions options = error_feedback_options(spec, agents);
  if (options.kind == ErrorFeedbackKind::kDgc) options.kind = ErrorFeedbackKind::kResidual;
  return options;
}

}  // namespace gradbus
