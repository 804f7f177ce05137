// topk sends exactly the max(1, floor(count * ratio)) elements of largest magnitude. For equal
// magnitudes the lower index wins. This is MergeComp's top-k (Wang, Wu, Ng 2023), whose payloads
// are pairs of f32 and i32. With a warm-up it sends more in the first rounds (warm_up.h). Payload:
// sparse_payload.h, entries exactly that many; with a warm-up, as many as in any stage.
#pragma once

#include <memory>
#include <span>

#include "compression/codecs/largest.h"
#include "compression/codecs/sparse_payload.h"
#include "compression/codecs/warm_up.h"
#include "compression/registry.h"

namespace gradbus {

class TopK : public SelectingCodec {
 public:
  TopK(const WarmUp& ratio, WireType type, size_t count_max);

  size_t entries(size_t count, uint64_t round) const;

 private:
  size_t entries_min(size_t count) const override;
  size_t entries_max(size_t count) const override;
  Selection select(const EncodeInput& input) override;
  // Guessed keys: one that slightly more than k elements reach, and one that about k reach. 0 when
  // the sample gives no guess.
  struct Guess {
    uint32_t safe = 0;
    uint32_t likely = 0;
  };
  Guess guess(const EncodeInput& input, size_t k);
  void take_line(const EncodeInput& input, size_t first, float* to) const;

  const WarmUp ratio_;
  Largest largest_;
  std::unique_ptr<float[]> sample_;
};

std::unique_ptr<Codec> make_topk(const CodecOptions& options, const CodecShape& shape);

}  // namespace gradbus
