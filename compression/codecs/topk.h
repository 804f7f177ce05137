// topk: the max(1, floor(count * ratio)) elements of largest magnitude, exactly; of equal
// magnitudes the lower index. MergeComp's top-k (Wang, Wu, Ng 2023), whose payloads are pairs of
// f32 and i32. Payload: sparse_payload.h, entries exactly that many.
#pragma once

#include <memory>
#include <span>

#include "compression/codecs/largest.h"
#include "compression/codecs/sparse_payload.h"
#include "compression/registry.h"

namespace gradbus {

class TopK : public SelectingCodec {
 public:
  TopK(double ratio, WireType type, size_t count_max);

  size_t entries(size_t count) const;

 private:
  size_t entries_min(size_t count) const override { return entries(count); }
  size_t entries_max(size_t count) const override { return entries(count); }
  Selection select(const EncodeInput& input) override;
  uint32_t guess(const EncodeInput& input, size_t k);

  const double ratio_;
  Largest largest_;
  std::unique_ptr<float[]> sample_;
};

std::unique_ptr<Codec> make_topk(const CodecOptions& options, const CodecShape& shape);

}  // namespace gradbus
