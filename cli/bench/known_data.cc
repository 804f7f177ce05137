#include "cli/bench/known_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/kernels/half.h"

namespace gradbus {
namespace {

constexpr int kLargest = 127;     // of i8; bf16 holds whole numbers up to 256
constexpr int kSummandsMax = 64;  // ranks that bring other numbers than 0 to a sum
constexpr int kFactorsMax = 6;    // ranks that bring a 2 to a product
constexpr double kUnitsOff = 4;   // of the last place, where division rounds

// Sebastiano Vigna's finaliser of splitmix64: every bit of the input moves half of the output's.
uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

template <typename T>
void put(T value, std::byte* at) {
  std::memcpy(at, &value, sizeof(value));
}

template <typename T>
T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

void store(DType dtype, double value, std::byte* at) {
  switch (dtype) {
    case DType::kF32: return put(static_cast<float>(value), at);
    case DType::kF64: return put(value, at);
    case DType::kF16: return put(f16_from_f32(static_cast<float>(value)), at);
    case DType::kBF16: return put(bf16_from_f32(static_cast<float>(value)), at);
    case DType::kI32: return put(static_cast<int32_t>(value), at);
    case DType::kI64: return put(static_cast<int64_t>(value), at);
    case DType::kI8: return put(static_cast<int8_t>(value), at);
    case DType::kI16: return put(static_cast<int16_t>(value), at);
    case DType::kU16: return put(static_cast<uint16_t>(value), at);
    case DType::kU32: return put(static_cast<uint32_t>(value), at);
    case DType::kU64: return put(static_cast<uint64_t>(value), at);
    case DType::kU8:
    case DType::kBool: return put(static_cast<uint8_t>(value), at);
  }
}

double load_float(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::kF32: return get<float>(at);
    case DType::kF64: return get<double>(at);
    case DType::kF16: return f32_from_f16(get<uint16_t>(at));
    case DType::kBF16: return f32_from_bf16(get<uint16_t>(at));
    default: return 0;
  }
}

double last_place(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 0x1p-52;
    case DType::kF16: return 0x1p-10;
    case DType::kBF16: return 0x1p-7;
    default: return 0x1p-23;
  }
}

double combined(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::kMin: return std::min(a, b);
    case ReduceOp::kMax: return std::max(a, b);
    case ReduceOp::kProduct: return a * b;
    case ReduceOp::kBitAnd: return static_cast<int>(a) & static_cast<int>(b);
    case ReduceOp::kBitOr: return static_cast<int>(a) | static_cast<int>(b);
    case ReduceOp::kAdasum: return a;  // of equal vectors it is that vector (Maleki et al. 2020)
    default: return a + b;
  }
}

}  // namespace

KnownData::KnownData(DType dtype, ReduceOp op, int ranks, uint64_t seed)
    : dtype_(dtype), op_(op), ranks_(ranks), seed_(seed) {
  const size_t bytes = dtype_bytes(dtype);
  for (int rank = 0; rank < ranks; ++rank) {
    inputs_.emplace_back(kPeriod * bytes);
    for (uint64_t i = 0; i < kPeriod; ++i)
      store(dtype, input(rank, i), inputs_.back().data() + i * bytes);
  }
  if (op == ReduceOp::kNone) return;
  result_.resize(kPeriod * bytes);
  for (uint64_t i = 0; i < kPeriod; ++i) store(dtype, result(i), result_.data() + i * bytes);
}

double KnownData::input(int rank, uint64_t i) const {
  const int source = op_ == ReduceOp::kAdasum ? 0 : rank;
  const uint64_t random =
      mixed(mixed(seed_) ^ (static_cast<uint64_t>(source) << 32) ^ (i % kPeriod));
  if (dtype_ == DType::kBool) return static_cast<double>(random & 1);
  switch (op_) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      if (rank >= kSummandsMax) return 0;
      return static_cast<double>(random % (kLargest / std::min(ranks_, kSummandsMax) + 1));
    case ReduceOp::kProduct: return rank < kFactorsMax && (random & 1) != 0 ? 2 : 1;
    default: return static_cast<double>(random % (kLargest + 1));
  }
}

double KnownData::result(uint64_t i) const {
  double all = input(0, i);
  for (int rank = 1; rank < ranks_; ++rank) all = combined(op_, all, input(rank, i));
  if (op_ != ReduceOp::kAverage) return all;
  return is_float(dtype_) ? all / ranks_ : std::trunc(all / ranks_);
}

const KnownData::Table& KnownData::table(int rank) const {
  return rank == kResult ? result_ : inputs_[static_cast<size_t>(rank)];
}

void KnownData::fill(int rank, uint64_t first, std::span<std::byte> into) const {
  const Table& from = table(rank);
  for (size_t at = first % kPeriod * dtype_bytes(dtype_); !into.empty(); at = 0) {
    const size_t bytes = std::min(from.size() - at, into.size());
    std::memcpy(into.data(), from.data() + at, bytes);
    into = into.subspan(bytes);
  }
}

uint64_t KnownData::count_wrong(int rank, uint64_t first, std::span<const std::byte> got) const {
  const Table& expected = table(rank);
  const size_t step = dtype_bytes(dtype_);
  uint64_t wrong = 0;
  for (size_t at = first % kPeriod * step; !got.empty(); at = 0) {
    const size_t bytes = std::min(expected.size() - at, got.size());
    if (std::memcmp(got.data(), expected.data() + at, bytes) != 0)
      for (size_t i = 0; i < bytes; i += step)
        wrong += is_close(expected.data() + at + i, got.data() + i) ? 0 : 1;
    got = got.subspan(bytes);
  }
  return wrong;
}

bool KnownData::is_close(const std::byte* expected, const std::byte* got) const {
  if (std::memcmp(expected, got, dtype_bytes(dtype_)) == 0) return true;
  const bool rounds = op_ == ReduceOp::kAverage || op_ == ReduceOp::kAdasum;
  if (!rounds || !is_float(dtype_)) return false;
  const double right = load_float(dtype_, expected);
  return std::abs(load_float(dtype_, got) - right) <= kUnitsOff * last_place(dtype_) * right;
}

}  // namespace gradbus
