// A codec packs the gradient of one partition (a tensor, or a piece of one) into a smaller payload
// and adds payloads of others back.
//
// It owns no thread, file, clock or lock and allocates nothing after construction, so a test
// needs two spans and nothing else. One instance serves one stream of partitions no longer than the
// `count_max` it was made for; it is not thread-safe. The same input and seed give the same bytes
// on every processor.
//
// NOT FINITE. A NaN or Inf in the input reaches the decoded vector as at least one NaN or Inf, so a
// loss scaler sees it. The residual stays finite. That step is lost, as it would be without a
// codec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/dtype.h"
#include "common/status.h"
#include "compression/momentum_step.h"

namespace gradbus {

// The encoder encodes v[i] = gradient[i] + decay * residual[i]. With a residual it stores the error
// there: v[i] - decoded[i] (error feedback: Karimireddy et al. 2019).
struct EncodeInput {
  std::span<const float> gradient = {};  // empty: zeros (the state keeps everything in `residual`)
  std::span<float> residual = {};        // empty: no error feedback
  float decay = 1;
  // Seed of all random numbers, from mix_u64(): differs by round, partition and sender.
  uint64_t seed = 0;
  uint64_t round = 1;  // 1 for the first round of this partition: warm-up schedules
  // DGC's momentum, for codecs that accumulate it while they read the gradient
  // (CodecTraits::takes_momentum): v is what accumulate_momentum() leaves in the residual.
  std::span<float> momentum = {};  // empty: none; else gradient and residual are there
  MomentumStep step = {};

  size_t count() const { return gradient.empty() ? residual.size() : gradient.size(); }
};

class Codec {
 public:
  virtual ~Codec() = default;

  // The largest payload of encode() for `count` elements; buffers have this size.
  virtual size_t payload_bytes_max(size_t count) const = 0;

  // Writes the payload to the front of `payload`, which has at least
  // payload_bytes_max(input.count()) bytes, and returns its size. Cannot fail. Without elements,
  // the payload is the header alone.
  virtual size_t encode(const EncodeInput& input, std::span<std::byte> payload) = 0;

  // Checks a payload from a peer. Returns kCorrupt, naming the field, unless encode() could have
  // written it for `count` elements. The functions below are called only for payloads that passed.
  virtual Status check(std::span<const std::byte> payload, size_t count) const = 0;

  // sum[i] += scale * decoded[i]
  virtual void accumulate(std::span<const std::byte> payload, float scale,
                          std::span<float> sum) const = 0;
  // values[i] = scale * decoded[i]
  virtual void decode(std::span<const std::byte> payload, float scale,
                      std::span<float> values) const;

  // The codec's own state of each element between rounds (Signum's momentum), or empty.
  virtual std::span<float> momentum() { return {}; }

  // Codecs that send a selection: sets values[i] = 0 for each sent element i (DGC's momentum factor
  // masking). Others do nothing.
  virtual void clear_sent(std::span<const std::byte> payload, std::span<float> values) const;
};

// A codec whose payloads can be added in flight: what travels is a dense vector that the agents sum
// by any all-reduce, in one or two rounds. After the last one every agent holds the same sum.
//
// It serves partitions of exactly the `count_max` elements it was made for, one exchange at a time:
// project(0), the sum over agents arrives in the same memory, project(1) gets this sum, its own sum
// arrives, finish(). All of these calls get the same `input`, which does not change until the
// residual is written. Vectors are aligned for their dtype.
class LinearCodec {
 public:
  virtual ~LinearCodec() = default;

  virtual uint32_t rounds() const = 0;
  virtual DType dtype(uint32_t round) const = 0;
  // Elements of the vector of `round`, equal on every agent. 0 only for no elements.
  virtual size_t vector_elements(uint32_t round) const = 0;

  // Fills `vector`, of vector_elements(round). `sum_before` is the sum of the previous round, empty
  // in round 0. `shared_seed` is equal on all agents.
  virtual void project(uint32_t round, const EncodeInput& input, uint64_t shared_seed,
                       std::span<const std::byte> sum_before, std::span<std::byte> vector) = 0;

  // values[i] = scale * (the sum over agents of what was sent). With a residual, it becomes v minus
  // this agent's contribution, so that residuals and values together keep the sum of all v. It does
  // not change if a sum shows that an agent had a value that is not finite. The residual is written
  // once: by project(0) where rounds() is 1, otherwise by finish(). `values` may be the memory of
  // input.gradient.
  virtual void finish(const EncodeInput& input, uint64_t shared_seed, uint32_t agents,
                      std::span<const std::byte> sum, float scale, std::span<float> values) = 0;

  // After finish(), codecs that send a selection: sets values[i] = 0 for each element i that this
  // agent has sent (DGC's momentum factor masking). Others do nothing. It also does nothing if
  // nothing was sent because a value was not finite.
  virtual void clear_sent(std::span<float> values) const;
};

}  // namespace gradbus
