// One bit per element, the sign, and one or two levels for each block of elements.
//
//   signsgd     the level is the option `step`: a vote (Bernstein et al. 2018, algorithm 1). The
//               sum of votes, encoded again by its owner, is the majority vote
//   signum      the same for the momentum m = beta m + v, which the codec keeps (Bernstein et al.
//               2018, algorithm 3; their momentum is 1 - beta times this one and has the same
//               sign). The owner of the sum uses beta = 0, or signsgd
//   efsignsgd   the level is the mean of |v| (Karimireddy et al. 2019)
//   onebit      two levels: the mean of the elements below 0 and of the others (Seide et al. 2014)
//
// Element i decodes to -level where v[i] < 0, else to +level. A 0 and a tied vote count as
// positive, as in the public code of the papers.
//
// Payload after the header of payload.h (entries = count, flags and detail 0). B is the number of
// blocks. All have `block` elements except the last. S is 2 for onebit, else 1:
//   offset 16                f32[B][S]           levels; onebit: first that of elements below 0,
//                                                with its minus sign; 0 where a block has none
//   offset 16 + 4 * B * S    u64[ceil(count/64)] signs: bit i % 64 of word i / 64 is set where
//                                                v[i] < 0; bits past `count` are clear
//
// A block with a NaN or Inf (or elements over FLT_MAX / 16) has NaN levels. Its residual and
// momentum do not change.
#pragma once

#include <vector>

#include "common/large_vector.h"
#include "compression/codec.h"
#include "compression/kernels/sign/signs.h"
#include "proto/numbers.h"

namespace gradbus {

// 8 KiB of gradient and residual. The loads of the next block start while the residual of this one
// is written (Zen 4: efsignsgd encodes in 0.88 of its time with 2048). Levels are 1/32 of the
// payload.
inline constexpr size_t kSignBlockElements = 1024;
// For signsgd, which keeps no residual by default. With 1024 it took 1.12 times as long.
inline constexpr size_t kVoteBlockElements = 4096;

class SignCodec : public Codec {
 public:
  enum class Level : uint8_t { kStep, kMean, kTwoMeans };

  // `block` elements, rounded up to whole words, share their levels. 0 means all elements of the
  // partition.
  SignCodec(CodecId id, Level level, size_t block, float step);

  CodecId id() const { return id_; }
  Level level() const { return level_; }
  size_t block() const { return block_; }
  float step() const { return step_; }

  size_t payload_bytes_max(size_t count) const override;
  size_t encode(const EncodeInput& input, std::span<std::byte> payload) override;
  Status check(std::span<const std::byte> payload, size_t count) const override;
  void accumulate(std::span<const std::byte> payload, float scale,
                  std::span<float> sum) const override;
  void decode(std::span<const std::byte> payload, float scale,
              std::span<float> values) const override;

 protected:
  // Encodes elements [first, first + count): writes their signs to `words` and the error to the
  // residual.
  virtual SignLevels encode_block(const EncodeInput& input, size_t first, size_t count,
                                  std::byte* words);

  SignLevels levels_of(const SignSums& sums, size_t count) const;

 private:
  size_t blocks(size_t count) const { return (count + block_ - 1) / block_; }
  size_t level_bytes() const { return level_ == Level::kTwoMeans ? 8 : 4; }
  size_t words_offset(size_t count) const;
  SignLevels load_levels(std::span<const std::byte> payload, size_t block) const;
  void store_levels(std::span<std::byte> payload, size_t block, SignLevels levels) const;
  bool are_possible(SignLevels levels) const;
  template <typename Work>
  void for_each_block(std::span<const std::byte> payload, size_t count, float scale,
                      Work work) const;

  const CodecId id_;
  const Level level_;
  const size_t block_;
  const float step_;
};

class Signum final : public SignCodec {
 public:
  Signum(float beta, float step, size_t count_max);

  std::span<float> momentum() override { return momentum_; }
  float beta() const { return beta_; }

 private:
  SignLevels encode_block(const EncodeInput& input, size_t first, size_t count,
                          std::byte* words) override;
  const float* compensated(const EncodeInput& input, size_t first, size_t count);

  const float beta_;
  LargeVector<float> momentum_;
  std::vector<float> scratch_;  // one block
};

}  // namespace gradbus
