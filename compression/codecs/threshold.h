// threshold: every element of magnitude `value` and above (Aji and Heafield 2017; GRACE's form with
// a fixed threshold). Payload: sparse_payload.h, any number of entries; at worst a bitmap and all
// values.
#pragma once

#include <memory>

#include "compression/codecs/largest.h"
#include "compression/codecs/sparse_payload.h"
#include "compression/registry.h"

namespace gradbus {

class Threshold : public SparseCodec {
 public:
  Threshold(float value, WireType type, size_t count_max)
      : SparseCodec(CodecId::kThreshold, type), key_(magnitude_key(value)), found_(count_max) {}

 private:
  size_t entries_min(size_t) const override { return 0; }
  size_t entries_max(size_t count) const override { return count; }
  Selection select(const EncodeInput& input) override {
    const bool clear = sends_exactly() && !input.residual.empty();
    const size_t bad = found_.collect(input, {key_, kKeyMax}, clear);
    Selection selection = bad == kAllFinite ? found_.selection() : Selection{.not_finite = bad};
    selection.cleared = clear;
    return selection;
  }

  const uint32_t key_;
  Candidates found_;
};

inline std::unique_ptr<Codec> make_threshold(const CodecOptions& options, const CodecShape& shape) {
  return std::make_unique<Threshold>(static_cast<float>(options.number("value")),
                                     wire_type(options.text("values")), shape.count_max);
}

}  // namespace gradbus
