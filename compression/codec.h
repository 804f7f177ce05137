// A codec packs the gradient of one unit (a tensor, or a piece of one) into a smaller payload and
// adds payloads of others back.
//
// It owns no thread, file, clock or lock and allocates nothing after construction, so it is tested
// with two spans and nothing else. One instance serves one stream of units no longer than the
// `count_max` it was made for; it is not thread-safe. The same input and seed give the same bytes
// on every processor.
//
// NOT FINITE. A NaN or Inf in the input reaches the decoded vector as at least one NaN or Inf, so a
// loss scaler sees it; the residual stays finite: that step is lost, as it would be without codec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/dtype.h"
#include "common/status.h"
#include "compression/kernels/momentum.h"

namespace gradbus {

// v[i] = gradient[i] + decay * residual[i] is what gets encoded. With a residual the encoder leaves
// there what the payload lacks, v[i] - decoded[i] (error feedback: Karimireddy et al. 2019).
struct EncodeInput {
  std::span<const float> gradient = {};  // empty: zeros (a memory keeps everything in `residual`)
  std::span<float> residual = {};        // empty: no error feedback
  float decay = 1;
  uint64_t seed = 0;   // of everything random, from mix_u64(): differs by round, unit and sender
  uint64_t round = 1;  // 1 for the first of this unit: warm-up schedules
  // Of DGC's memory, given to codecs that take it in as they read the gradient
  // (CodecTraits::takes_momentum): v is what accumulate_momentum() leaves in the residual.
  std::span<float> momentum = {};  // empty: none; else gradient and residual are there
  MomentumStep step = {};

  size_t count() const { return gradient.empty() ? residual.size() : gradient.size(); }
};

class Codec {
 public:
  virtual ~Codec() = default;

  // The largest payload that encode() can write for `count` elements; buffers are sized with it.
  virtual size_t payload_bytes_max(size_t count) const = 0;

  // Writes the payload at the front of `payload`, which has payload_bytes_max(input.count()) bytes
  // at least, and returns its size. Cannot fail. No elements: a payload of the header alone.
  virtual size_t encode(const EncodeInput& input, std::span<std::byte> payload) = 0;

  // A payload came from a peer: kCorrupt, naming the field, unless it is one that encode() could
  // have written for `count` elements. Everything below is called only for payloads that passed.
  virtual Status check(std::span<const std::byte> payload, size_t count) const = 0;

  // sum[i] += scale * decoded[i]
  virtual void accumulate(std::span<const std::byte> payload, float scale,
                          std::span<float> sum) const = 0;
  // values[i] = scale * decoded[i]
  virtual void decode(std::span<const std::byte> payload, float scale,
                      std::span<float> values) const;

  // What the codec itself remembers of each element between rounds (Signum's momentum); empty:
  // nothing.
  virtual std::span<float> momentum() { return {}; }

  // Codecs that send a selection of elements: sets values[i] = 0 where element i was sent (DGC's
  // momentum factor masking). Others: nothing.
  virtual void clear_sent(std::span<const std::byte> payload, std::span<float> values) const;
};

// A codec whose payloads can be added in flight: what travels is a dense vector that the agents sum
// by any all-reduce, in one or two rounds. After the last one every agent holds the same sum.
//
// It serves units of exactly the `count_max` elements it was made for, one exchange at a time:
// project(0), the sum over agents arrives in the same memory, project(1) is given that, its sum
// arrives, finish(). `input` is the same, and unchanged until the residual is written, in all of
// these calls. Vectors are aligned for their dtype.
class LinearCodec {
 public:
  virtual ~LinearCodec() = default;

  virtual uint32_t rounds() const = 0;
  virtual DType dtype(uint32_t round) const = 0;
  // Elements of the vector of `round`; the same on every agent. 0 only for no elements.
  virtual size_t vector_elements(uint32_t round) const = 0;

  // Fills `vector`, of vector_elements(round). `sum_before` is the sum of the round before, nothing
  // in round 0; `shared_seed` is alike on all agents.
  virtual void project(uint32_t round, const EncodeInput& input, uint64_t shared_seed,
                       std::span<const std::byte> sum_before, std::span<std::byte> vector) = 0;

  // values[i] = scale * (the sum over agents of what was sent). With a residual: v - what this
  // agent contributed, so that residuals and values together keep the sum of all v; unless a sum
  // says that something was not finite, on any agent. Who writes the residual, once: project(0)
  // where rounds() is 1, since nothing is left to learn; else finish(). `values` may be the memory
  // of input.gradient.
  virtual void finish(const EncodeInput& input, uint64_t shared_seed, uint32_t agents,
                      std::span<const std::byte> sum, float scale, std::span<float> values) = 0;

  // After finish(), codecs that send a selection: sets values[i] = 0 where this agent has sent
  // element i (DGC's momentum factor masking). Others, and where nothing was sent because something
  // was not finite: nothing.
  virtual void clear_sent(std::span<float> values) const;
};

}  // namespace gradbus
