// The part of the elements that a codec sends. It may be larger in the first rounds (Lin et al.
// 2018, section 3.3: sparsity 75, 93.75, 98.4375, 99.6 % in the first four epochs).
//
//   rounds = 0         the ratio, always
//   stage e, from 0    max(c^(e+1), ratio), in stages of equally many rounds; then the ratio
#pragma once

#include <cstdint>
#include <vector>

#include "compression/registry.h"

namespace gradbus {

struct WarmUp {
  double ratio = 0.001;
  double coefficient = 0.25;  // c; 0: ratio^(1 / (stages + 1))
  uint64_t rounds = 0;        // total of all stages
  uint64_t stages = 4;

  // The ratio in round 1, 2, ...
  double ratio_in(uint64_t round) const;
  // The largest ratio, which is that of the first round.
  double largest() const { return ratio_in(1); }
};

// Option rows warmup, epoch, stages and c, for a codec with a ratio, and their values.
std::vector<CodecOption> warm_up_options();
WarmUp warm_up(const CodecOptions& options);

}  // namespace gradbus
