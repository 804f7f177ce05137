// The data of --check: results known exactly, and nothing that is wrong passes.
#include "cli/bench/known_data.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "common/kernels/reduce.h"

namespace gradbus {
namespace {

constexpr uint64_t kPeriod = KnownData::kPeriod;
constexpr uint64_t kCount = 3 * kPeriod + 17;
constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8,
                             DType::kU8,  DType::kI16, DType::kU16, DType::kI32,  DType::kU32,
                             DType::kI64, DType::kU64, DType::kBool};
constexpr ReduceOp kOps[] = {ReduceOp::kSum,  ReduceOp::kAverage, ReduceOp::kMin,
                             ReduceOp::kMax,  ReduceOp::kProduct, ReduceOp::kBitAnd,
                             ReduceOp::kBitOr};

std::vector<std::byte> input_of(const KnownData& known, DType dtype, int rank, uint64_t first) {
  std::vector<std::byte> bytes(kCount * dtype_bytes(dtype));
  known.fill(rank, first, bytes);
  return bytes;
}

// The scalar kernel, which is the definition of a reduction, over the ranks in a given order.
std::vector<std::byte> reduced(const KnownData& known, DType dtype, ReduceOp op,
                               const std::vector<int>& order, uint64_t first) {
  std::vector<std::vector<std::byte>> inputs;
  std::vector<const std::byte*> sources;
  for (const int rank : order) inputs.push_back(input_of(known, dtype, rank, first));
  for (const auto& input : inputs) sources.push_back(input.data());
  std::vector<std::byte> result(kCount * dtype_bytes(dtype));
  std::byte* const target = result.data();
  Reduction reduction{.op = op};
  if (op == ReduceOp::kAverage) reduction.divisor = static_cast<uint32_t>(order.size());
  reduce_scalar(dtype, reduction, sources, {&target, 1}, kCount);
  return result;
}

// Expect: for any number of ranks, any order of them and any place to begin, nothing is wrong.
TEST(KnownData, HoldsForEveryOperationAndDtype) {
  for (const DType dtype : kDTypes)
    for (const ReduceOp op : kOps)
      for (const int ranks : {1, 2, 3, 7, 9, 100}) {
        if (!op_fits_dtype(op, dtype)) continue;
        const KnownData known(dtype, op, ranks, 5);
        std::vector<int> order(static_cast<size_t>(ranks));
        std::iota(order.rbegin(), order.rend(), 0);
        const auto result = reduced(known, dtype, op, order, 31);
        EXPECT_EQ(known.count_wrong(KnownData::kResult, 31, result), 0u)
            << dtype_name(dtype) << " " << reduce_op_name(op) << " " << ranks;
      }
}

TEST(KnownData, OneChangedElementIsFound) {
  const KnownData known(DType::kF32, ReduceOp::kSum, 4, 1);
  auto result = reduced(known, DType::kF32, ReduceOp::kSum, {0, 1, 2, 3}, 0);
  for (const uint64_t at : {uint64_t{0}, kPeriod - 1, kPeriod, kCount - 1}) {
    auto changed = result;
    changed[at * 4 + 3] ^= std::byte{0x40};
    EXPECT_EQ(known.count_wrong(KnownData::kResult, 0, changed), 1u) << at;
  }
}

// Averages of floats are rounded; one unit is no error, a hundredth is.
TEST(KnownData, AveragesMayBeRounded) {
  const KnownData known(DType::kF32, ReduceOp::kAverage, 3, 1);
  std::vector<std::byte> bytes(kPeriod * 4);
  known.fill(KnownData::kResult, 0, bytes);
  const auto with_factor = [&](float factor) {
    auto changed = bytes;
    for (uint64_t i = 0; i < kPeriod; ++i) {
      float value = 0;
      std::memcpy(&value, &changed[i * 4], 4);
      value *= factor;
      std::memcpy(&changed[i * 4], &value, 4);
    }
    return known.count_wrong(KnownData::kResult, 0, changed);
  };
  EXPECT_EQ(with_factor(1 + 0x1p-23f), 0u);
  EXPECT_GT(with_factor(1.01f), kPeriod * 9 / 10);
}

// Expect: what a mistake would deliver (no sum, one rank missing, a block further, stale rubbish)
// is mostly wrong; the small numbers agree by chance here and there.
TEST(KnownData, MistakesLookWrong) {
  const KnownData known(DType::kF32, ReduceOp::kSum, 4, 1);
  const auto own = input_of(known, DType::kF32, 0, 0);
  const auto one_missing = reduced(known, DType::kF32, ReduceOp::kSum, {0, 1, 2}, 0);
  const auto shifted = reduced(known, DType::kF32, ReduceOp::kSum, {0, 1, 2, 3}, 1024);
  const std::vector<std::byte> rubbish(kCount * 4, std::byte{0xa5});
  for (const auto* bytes : {&own, &one_missing, &shifted})
    EXPECT_GT(known.count_wrong(KnownData::kResult, 0, *bytes), kCount * 9 / 10);
  EXPECT_EQ(known.count_wrong(KnownData::kResult, 0, rubbish), kCount);
}

TEST(KnownData, RanksAndSeedsDiffer) {
  const KnownData known(DType::kI32, ReduceOp::kNone, 3, 1);
  const KnownData other(DType::kI32, ReduceOp::kNone, 3, 2);
  const auto block = input_of(known, DType::kI32, 1, 7);
  EXPECT_EQ(known.count_wrong(1, 7, block), 0u);
  EXPECT_GT(known.count_wrong(2, 7, block), kCount * 9 / 10);
  EXPECT_GT(other.count_wrong(1, 7, block), kCount * 9 / 10);
}

// Adasum of equal vectors is that vector, so all ranks bring the same.
TEST(KnownData, AdasumGetsEqualVectors) {
  const KnownData known(DType::kF32, ReduceOp::kAdasum, 4, 1);
  const auto vector = input_of(known, DType::kF32, 3, 0);
  EXPECT_EQ(known.count_wrong(KnownData::kResult, 0, vector), 0u);
}

}  // namespace
}  // namespace gradbus
