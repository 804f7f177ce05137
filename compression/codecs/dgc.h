// dgc sends about the ceil(count * ratio) elements of largest magnitude. A sample gives the
// threshold (Deep Gradient Compression: Lin, Han, Mao, Wang, Dally 2018; the constants are those of
// its public code). The error feedback does momentum correction and factor masking (memory.h).
//
// The partition is sampled in strides from a random start. The threshold is the sample's element of
// rank ceil(samples * ratio). While fewer than 0.8 k elements are above it, it is multiplied by
// 0.8, at most ten times. If more than k elements are above it, the k largest are sent. Three
// things differ from the public code:
//   - The public code drops elements between k and 1.3 k by index, so the end of a partition is
//     hardly ever sent. Here they are dropped by magnitude.
//   - It counts in one pass over memory for each of the ten steps. Here one pass collects the
//     elements that reach the sample's rank 2 k, and counting uses those.
//   - It samples 1 % of any partition. Here the sample has at most 65536 elements or 32 / ratio.
// Payload: sparse_payload.h, entries at least 1 and at most the largest k of any stage.
#pragma once

#include <memory>

#include "compression/codecs/largest.h"
#include "compression/codecs/sparse_payload.h"
#include "compression/codecs/warm_up.h"
#include "compression/registry.h"

namespace gradbus {

struct DgcOptions {
  WarmUp ratio;
  double sample = 0.01;  // part of the partition
};

struct DgcSizes {
  size_t k = 0;
  size_t stride = 1;
  size_t samples = 0;
  size_t top = 0;  // rank of the threshold in the sample
};
DgcSizes dgc_sizes(size_t count, double ratio, double sample);

class Dgc : public SelectingCodec {
 public:
  Dgc(const DgcOptions& options, WireType type, size_t count_max);

  DgcSizes sizes(size_t count, uint64_t round) const;
  // The most elements that may reach the sample's rank 2 k. If more do, the selection is exact.
  size_t candidates() const { return largest_.candidates(); }
  // The maximum of any round.
  size_t samples_max() const { return samples_max_; }

 private:
  size_t entries_min(size_t count) const override { return count == 0 ? 0 : 1; }
  size_t entries_max(size_t count) const override;
  Selection select(const EncodeInput& input) override;

  const DgcOptions options_;
  Largest largest_;
  const size_t samples_max_;
  std::unique_ptr<float[]> sample_;
};

std::unique_ptr<Codec> make_dgc(const CodecOptions& options, const CodecShape& shape);

}  // namespace gradbus
