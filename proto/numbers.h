// Numbers that cross a process or machine boundary: reduce operations, collectives, codecs, limits
// (and dtypes, in common/dtype.h).
//
// Append-only. A number is never reused and never changes its meaning; readers refuse unknown ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/dtype.h"

namespace gradbus {

enum class ReduceOp : uint8_t {
  kNone = 0,  // collectives that do not reduce
  kSum = 1,
  kAverage = 2,  // sum / world size; integers truncate toward zero
};

enum class CollectiveKind : uint8_t {
  kAllReduce = 1,
  kBroadcast = 2,
  kAllGather = 3,
};

enum class CodecId : uint8_t {
  kDense = 0,  // elements as they are, little-endian
};

inline constexpr uint32_t kRanksMax = 4096;      // of one job
inline constexpr uint32_t kLocalRanksMax = 128;  // of one job on one node
inline constexpr uint32_t kTensorNameBytesMax = 255;
inline constexpr uint32_t kJobNameBytesMax = 127;
inline constexpr uint32_t kTensorsMax = 1u << 20;  // of one job
inline constexpr uint64_t kTensorBytesMax = 1ull << 40;

constexpr bool is_reduce_op(uint32_t number) { return number <= 2; }
constexpr bool is_collective(uint32_t number) { return number >= 1 && number <= 3; }

// "sum", "all_reduce"; "?" for an unknown number.
std::string_view reduce_op_name(ReduceOp op);
std::string_view collective_name(CollectiveKind kind);

}  // namespace gradbus
