// The state that an agent keeps for one partition between rounds, so that nothing that a codec
// leaves out is lost.
//
//   none      nothing
//   residual  v = g + decay * r, then r = v - sent (error feedback: Seide et al. 2014, Karimireddy
//             et al. 2019)
//   dgc       m = momentum * m + g, r = r + m, then r and m are 0 where an element was sent (Lin et
//             al. 2018, sections 3.1 and 3.2). Nesterov: m = momentum * (m + g), r = r + m + g
//
// A gradient that is not finite changes nothing here, except for a rounding with more than 1 Mi
// elements. A finite gradient may make dgc's sums overflow. The result of that round is then not
// finite on all agents. Overflowed elements of m and r become 0, because otherwise no later round
// would be finite. Other elements keep their values, which are sent in later rounds. Allocates at
// construction only. One partition, one thread.
#pragma once

#include <cstdint>
#include <span>

#include "common/large_vector.h"
#include "compression/codec.h"
#include "compression/spec.h"
#include "proto/numbers.h"

namespace gradbus {

enum class ErrorFeedbackKind : uint8_t { kNone = 0, kResidual = 1, kDgc = 2 };

struct ErrorFeedbackOptions {
  ErrorFeedbackKind kind = ErrorFeedbackKind::kNone;
  float decay = 1;
  float momentum = 0.9F;
  bool nesterov = false;
  bool masking = true;
  float clip_norm = 0;  // limit for this agent's gradient, divided by sqrt(agents); 0: no clipping
  bool codec_takes_momentum = false;  // compensate() leaves momentum correction to the codec
};

// The options for `spec`; `ef=auto` depends on the codec.
ErrorFeedbackOptions error_feedback_options(const CompressionSpec& spec, uint32_t agents);

// Whether what it sends in a round depends on earlier rounds of the same tensor.
bool remembers(const CompressionSpec& spec);

class ErrorFeedback {
 public:
  ErrorFeedback(const ErrorFeedbackOptions& options, size_t count);

  // Accumulates the gradient. The codec encodes the result, which is valid until the next call.
  EncodeInput compensate(std::span<const float> gradient, uint64_t seed, uint64_t round);
  // Handles the payload of that result: momentum factor masking, or the end of an overflow.
  void update(const Codec& codec, std::span<const std::byte> payload);
  // The same after finish() of a linear codec.
  void update(const LinearCodec& codec);
  // The learning rate changed, but the stored values were scaled by the old one (BytePS: scale by
  // old / new).
  void rescale(float factor);

  // For checkpoints and for moves. Empty for kinds without a residual.
  std::span<float> residual() { return residual_; }
  std::span<float> momentum() { return momentum_; }
  std::span<float> part(ResidualStatePart part) {
    return part == ResidualStatePart::kResidual ? residual() : momentum();
  }

 private:
  void end_overflow();

  const ErrorFeedbackOptions options_;
  LargeVector<float> residual_;
  LargeVector<float> momentum_;
  bool overflowed_ = false;  // in this round, if the codec does not report it
};

}  // namespace gradbus
