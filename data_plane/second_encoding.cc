#include "data_plane/second_encoding.h"

namespace gradbus {

std::unique_ptr<Codec> second_codec(const CompressionSpec& spec, const CodecShape& shape,
                                    uint32_t agents) {
  const CodecRow& row = *spec.codec;
  const CodecRow& owner = row.owner.empty() ? row : *find_codec(row.owner);
  if (!row.traits.votes) return make_codec(owner, spec.options, shape);
  return make_codec(owner, spec.options.with("step", spec.options.number("step") * agents), shape);
}

ErrorFeedbackOptions second_error_feedback(const CompressionSpec& spec, uint32_t agents) {
  ErrorFeedbackOptions options = error_feedback_options(spec, agents);
  if (options.kind == ErrorFeedbackKind::kDgc) options.kind = ErrorFeedbackKind::kResidual;
  return options;
}

}  // namespace gradbus
