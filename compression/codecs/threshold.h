// threshold sends every element of magnitude `value` and above (Aji and Heafield 2017; GRACE's form
// with a fixed threshold). Payload: sparse_payload.h with any number of entries. The largest one is
// a bitmap with all values.
//
// The number of selected elements is known only at the end, and may be all. So values go to the
// payload as they are found, and their indices are stored as one bit each until then. A partition
// is read once.
#pragma once

#include <memory>

#include "compression/codecs/sparse_payload.h"
#include "compression/kernels/select/select.h"
#include "compression/registry.h"

namespace gradbus {

class Threshold final : public SparseCodec {
 public:
  Threshold(float value, WireType type, size_t count_max);
  size_t encode(const EncodeInput& input, std::span<std::byte> payload) override;

  uint32_t key() const { return key_; }

 private:
  size_t entries_min(size_t) const override { return 0; }
  size_t entries_max(size_t count) const override { return count; }
  // Returns kAllFinite, with v minus the sent values in the residual. Otherwise returns the index
  // of v's first element that is not finite, with the residual unchanged.
  size_t collect(const EncodeInput& input, std::span<std::byte> payload);
  // Writes a block's values and masks. Subtracts the sent values from `settled` unless it is null.
  TakenBlock take(const SelectBlock& block, uint64_t* masks, std::span<std::byte> values,
                  float* settled) const;
  size_t give_up(const EncodeInput& input, size_t taken, std::span<const std::byte> values) const;
  std::span<const uint32_t> listed(size_t count);

  const uint32_t key_;
  // Memory that is never written takes no room.
  std::unique_ptr<uint64_t[]> masks_;
  std::unique_ptr<uint32_t[]> indices_;  // used when there are too few entries for a bitmap
  size_t entries_ = 0;
};

std::unique_ptr<Codec> make_threshold(const CodecOptions& options, const CodecShape& shape);

}  // namespace gradbus
