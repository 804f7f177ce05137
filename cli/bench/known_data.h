// Data whose collective results are known exactly: what --check fills in and compares with. Pure.
//
// Element i of rank r's input is a small whole number made from (seed, r, i mod kPeriod). The range
// is chosen so that sums stay below 128 and products at most 64, which every dtype down to i8 and
// bf16 holds exactly, in whatever order they are combined. The period is a prime, so data that
// came from another place (a chunk further, another rank's block) does not look right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/dtype.h"
#include "common/reduce_op.h"

namespace gradbus {

class KnownData {
 public:
  static constexpr uint64_t kPeriod = 4093;
  static constexpr int kResult = -1;  // in place of a rank: the reduction of all ranks' inputs

  // `op` kNone: nothing is combined, there is no kResult.
  KnownData(DType dtype, ReduceOp op, int ranks, uint64_t seed);

  // Writes elements `first`, first + 1, ... of `rank`'s input.
  void fill(int rank, uint64_t first, std::span<std::byte> into) const;
  // How many elements of `got` are not elements `first`, first + 1, ... of `rank`'s input, or of
  // the result (kResult). Averages and Adasum of floats may be 4 units of the last place off.
  uint64_t count_wrong(int rank, uint64_t first, std::span<const std::byte> got) const;

  // Element i as a number; the tables above hold these.
  double input(int rank, uint64_t i) const;
  double result(uint64_t i) const;

 private:
  using Table = std::vector<std::byte>;  // kPeriod elements

  const Table& table(int rank) const;
  bool is_close(const std::byte* expected, const std::byte* got) const;

  DType dtype_;
  ReduceOp op_;
  int ranks_;
  uint64_t seed_;
  std::vector<Table> inputs_;  // by rank
  Table result_;
};

}  // namespace gradbus
