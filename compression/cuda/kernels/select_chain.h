// The kernels of topk, threshold, dgc and randk, one after the other: each needs all blocks of the
// one before it to have ended.
#pragma once

#include "compression/cuda/kernels/dgc_work.h"
#include "compression/cuda/kernels/radix_work.h"
#include "compression/cuda/kernels/randk_work.h"
#include "compression/cuda/kernels/select_work.h"

namespace gradbus {

template <class Keys, class Start>
void start_radix(const CudaEncode& input, const Start& start) {
  for (uint32_t digit = 0; digit < kDigits; ++digit) {
    start(HistogramWork<Keys>{input, digit});
    start(DigitWork<Keys>{input, digit});
  }
}

template <class Start>
void start_choice(const CudaEncode& input, const Start& start) {
  const CudaRule rule = rule_of(input);
  if (rule == CudaRule::kDrawn) {
    for (uint32_t draw = 0; draw < kDraws; ++draw) start(DrawWork{input, draw});
    start(DrawRestWork{input});
  }
  if (rule == CudaRule::kSampled) {
    start(SampleWork{input});
    start_radix<SampleKeys>(input, start);
    start(LevelsWork{input});
    start(ReachWork{input});
    start(LowerWork{input});
  }
  if (rule == CudaRule::kSampled || rule == CudaRule::kLargest) {
    start_radix<PartitionKeys>(input, start);
    start(ExactWork{input});
  }
}

template <class Start>
void start_select(const CudaEncode& input, const Start& start) {
  start(SelectInitWork{input});
  if (input.count != 0) start_choice(input, start);
  start(SelectCountWork{input});
  start(SelectScanWork{input});
  start(SelectWriteWork{input});
}

template <class Start>
void start_select(const CudaApply& input, const Start& start) {
  if (input.add != 1) start(SelectZeroWork{input});
  start(SelectApplyWork{input});
}

}  // namespace gradbus
