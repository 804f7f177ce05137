// The sizes of payloads, and what a CudaCodec and the others may hold. Compiled into the plug-in
// too, so it calls nothing outside of headers.
#include "common/dtype.h"
#include "common/reduce_op.h"
#include "compression/codecs/bucket_quantizer.h"
#include "compression/codecs/sign_codec.h"
#include "compression/cuda/cuda_codec.h"
#include "compression/cuda/cuda_error_feedback.h"
#include "compression/cuda/cuda_linear.h"
#include "compression/cuda/kernels/long_bucket_work.h"
#include "compression/cuda/kernels/long_sign_work.h"
#include "compression/cuda/kernels/selection.h"
#include "compression/kernels/quantize/pack.h"
#include "compression/payload.h"

namespace gradbus {
namespace {

size_t parts(size_t count, size_t part) { return (count + part - 1) / part; }

bool is_possible_dtype(uint8_t dtype) {
  const auto type = static_cast<DType>(dtype);
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

bool are_possible_buckets(const CudaCodec& codec) {
  const bool bits = codec.bits == 2 || codec.bits == 4 || codec.bits == 8;
  return bits && codec.kind <= static_cast<uint8_t>(CodeKind::kNatural) &&
         codec.bound <= static_cast<uint8_t>(Bound::kPowerOfTwo) && codec.bucket != 0 &&
         codec.bucket % kBucketGranule == 0 && codec.bucket <= kPartitionElementsMax;
}

bool are_possible_signs(const CudaCodec& codec) {
  return codec.level <= static_cast<uint8_t>(SignCodec::Level::kTwoMeans) && codec.bucket != 0 &&
         codec.bucket % 64 == 0 && codec.bucket <= kPartitionElementsMax && codec.momentum <= 1;
}

bool are_possible_selections(const CudaCodec& codec) {
  return codec.rule <= static_cast<uint8_t>(CudaRule::kDrawn) &&
         codec.wire <= static_cast<uint8_t>(WireType::kBf16);
}

}  // namespace

size_t cuda_payload_bytes(const CudaCodec& codec, size_t count, uint32_t entries) {
  if (codec.family == CudaFamily::kSelections)
    return kPayloadHeaderBytes + size_t{entries} * (sizeof(float) + sizeof(uint32_t));
  if (codec.family == CudaFamily::kDense)
    return kPayloadHeaderBytes + count * dtype_bytes(static_cast<DType>(codec.dtype));
  const size_t steps = parts(count, codec.bucket) * sizeof(float);
  if (codec.family == CudaFamily::kBuckets)
    return kPayloadHeaderBytes + steps + packed_bytes(codec.bits, count);
  const bool two = codec.level == static_cast<uint8_t>(SignCodec::Level::kTwoMeans);
  return kPayloadHeaderBytes + steps * (two ? 2 : 1) + sign_words(count) * 8;
}

size_t cuda_workspace_bytes(const CudaEncode& input) {
  switch (input.codec.family) {
    case CudaFamily::kDense: return 0;
    case CudaFamily::kBuckets: return long_bucket_bytes(input);
    case CudaFamily::kSigns: return long_sign_bytes(input);
    case CudaFamily::kSelections: return select_workspace_bytes(input);
  }
  return 0;
}

bool is_possible(const CudaCodec& codec) {
  switch (codec.family) {
    case CudaFamily::kDense: return is_possible_dtype(codec.dtype);
    case CudaFamily::kBuckets: return are_possible_buckets(codec);
    case CudaFamily::kSigns: return are_possible_signs(codec);
    case CudaFamily::kSelections: return are_possible_selections(codec);
  }
  return false;
}

// No rank is larger than what it is a rank of, and no sample lies outside.
bool is_possible(const CudaCodec& codec, const CudaChoice& choice, uint32_t count) {
  if (!is_possible(codec)) return false;
  if (codec.family != CudaFamily::kSelections || count == 0) return choice.entries <= count;
  const auto rule = static_cast<CudaRule>(codec.rule);
  const bool all = choice.entries == count;
  if (rule == CudaRule::kThreshold) return all && choice.in_flight == 0;
  if (choice.entries == 0 || choice.entries > count) return false;
  if (choice.in_flight > (rule == CudaRule::kDrawn ? 1 : 0)) return false;
  if (rule != CudaRule::kSampled) return true;
  return choice.top != 0 && choice.top <= choice.samples && choice.stride != 0 &&
         uint64_t{choice.samples} * choice.stride <= count;
}

bool is_possible(const CudaReduce& input) {
  const auto op = static_cast<ReduceOp>(input.op);
  if (!is_dtype(input.dtype) || !is_reduce_op(input.op) || input.divisor == 0) return false;
  if (op == ReduceOp::kNone || op == ReduceOp::kAdasum) return false;
  if (!op_fits_dtype(op, static_cast<DType>(input.dtype))) return false;
  const auto all_there = [&](const auto& rank_buffers, uint32_t count) {
    if (count == 0 || count > kCudaRankBuffersMax) return false;
    const size_t bytes = dtype_bytes(static_cast<DType>(input.dtype));
    for (uint32_t i = 0; i < count; ++i)
      if (rank_buffers[i] == nullptr || reinterpret_cast<uintptr_t>(rank_buffers[i]) % bytes != 0)
        return false;
    return true;
  };
  return all_there(input.sources, input.source_count) &&
         all_there(input.targets, input.target_count);
}

// A partition is there, and what is read and written besides.
bool is_possible(const CudaLowRank& input) {
  const CudaPartition& partition = input.partition;
  if (partition.count != 0 && partition.gradient == nullptr && partition.residual == nullptr)
    return false;
  if (input.part > CudaRankPart::kFinish || input.rank > smaller(input.rows, input.columns))
    return false;
  if (partition.count > uint64_t{input.rows} * input.columns) return false;
  const bool has_p = input.part == CudaRankPart::kRows || input.p != nullptr;
  const bool has_q = input.part == CudaRankPart::kColumns || input.q != nullptr;
  return partition.count == 0 || (has_p && has_q && input.out != nullptr);
}

bool is_possible(const CudaBlocks& input) {
  const CudaPartition& partition = input.partition;
  if (partition.count != 0 && partition.gradient == nullptr && partition.residual == nullptr)
    return false;
  if (input.part > CudaBlocksPart::kFinish || input.block == 0) return false;
  if (input.block > larger(partition.count, 1u) ||
      !is_possible_dtype(static_cast<uint8_t>(input.dtype)))
    return false;
  if (input.chosen > parts_of(partition.count, input.block)) return false;
  if (partition.count == 0) return true;
  if (input.part == CudaBlocksPart::kGather && input.blocks == nullptr) return false;
  const bool finishes = input.part == CudaBlocksPart::kFinish;
  return input.out != nullptr && (!finishes || (input.places != nullptr && input.sum != nullptr));
}

}  // namespace gradbus
