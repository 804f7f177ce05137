// Which kernels a codec is encoded, added and decoded with: start(Work) is called with one after
// the other. The one place where kernels are listed, for the plug-in and for tests, with those of
// error_feedback_work.h (start_remember, start_forget), reduce_work.h (start_reduce),
// low_rank_work.h (start_low_rank) and blocks_work.h (start_blocks).
#pragma once

#include "common/dtype.h"
#include "compression/cuda/kernels/blocks_work.h"
#include "compression/cuda/kernels/bucket_work.h"
#include "compression/cuda/kernels/dense_work.h"
#include "compression/cuda/kernels/error_feedback_work.h"
#include "compression/cuda/kernels/long_bucket_work.h"
#include "compression/cuda/kernels/long_sign_work.h"
#include "compression/cuda/kernels/low_rank_work.h"
#include "compression/cuda/kernels/reduce_work.h"
#include "compression/cuda/kernels/select_chain.h"
#include "compression/cuda/kernels/sign_work.h"

namespace gradbus {

template <template <class> class Dense, template <CodeKind> class Bucket, class Sign, class Input,
          class Start>
void start_by_family(const Input& input, const Start& start) {
  const CudaCodec& codec = input.codec;
  if (codec.family == CudaFamily::kSelections) return start_select(input, start);
  if (codec.family == CudaFamily::kSigns) return start(Sign{input});
  if (codec.family == CudaFamily::kDense) {
    const auto dtype = static_cast<DType>(codec.dtype);
    if (dtype == DType::kF16) return start(Dense<CudaF16>{input});
    if (dtype == DType::kBF16) return start(Dense<CudaBf16>{input});
    return start(Dense<CudaF32>{input});
  }
  switch (static_cast<CodeKind>(codec.kind)) {
    case CodeKind::kE4m3: return start(Bucket<CodeKind::kE4m3>{input});
    case CodeKind::kE5m2: return start(Bucket<CodeKind::kE5m2>{input});
    case CodeKind::kNatural: return start(Bucket<CodeKind::kNatural>{input});
    case CodeKind::kLevels: break;
  }
  return start(Bucket<CodeKind::kLevels>{input});
}

template <class Start>
void start_long_signs(const CudaEncode& input, const Start& start) {
  start(LongSignsWork{input});
  start(LongLevelsWork{input});
  if (input.residual != nullptr || input.momentum != nullptr) start(LongKeepWork{input});
}

template <class Start>
void start_encode(const CudaEncode& input, const Start& start) {
  if (input.codec.family == CudaFamily::kSigns && has_long_signs(input))
    return start_long_signs(input, start);
  if (input.codec.family == CudaFamily::kBuckets && has_long_buckets(input)) {
    start(LongMeasureWork{input});
    start(LongStepWork{input});
  }
  start_by_family<DenseEncodeWork, BucketEncodeWork, SignEncodeWork>(input, start);
}

template <class Start>
void start_apply(const CudaApply& input, const Start& start) {
  start_by_family<DenseApplyWork, BucketApplyWork, SignApplyWork>(input, start);
}

}  // namespace gradbus
