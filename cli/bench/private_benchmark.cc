// Plain buffers: every collective through gradbus_start_operations, several as one group.
#include <cstdlib>
#include <cstring>
#include <string>

#include "cli/bench/benchmark.h"

namespace gradbus {
namespace {

constexpr size_t kAlignment = 128;
constexpr int kRubbish = 0xa5;  // in outputs before a checked run

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};

class Buffer {
 public:
  explicit Buffer(uint64_t bytes)
      : memory_(static_cast<std::byte*>(
            std::aligned_alloc(kAlignment, (bytes + kAlignment) / kAlignment * kAlignment))),
        bytes_(memory_ != nullptr ? bytes : 0),
        wanted_(bytes) {}
  bool ok() const { return bytes_ == wanted_; }
  std::span<std::byte> span() const { return {memory_.get(), bytes_}; }
  void set(int value) const {
    if (bytes_ > 0) std::memset(memory_.get(), value, bytes_);
  }

 private:
  std::unique_ptr<std::byte, FreeMemory> memory_;
  uint64_t bytes_;
  uint64_t wanted_;
};

// Elements of one rank's buffers, and what gradbus_operation calls count (the table in gradbus.h).
struct Shape {
  uint64_t input = 0;
  uint64_t output = 0;  // 0 when in place, or when the handle has the output
  uint64_t count = 0;
  bool in_place = false;  // the result goes where the input was
};

Shape shape_of(const BenchWork& work, const Extent& extent, bool is_root) {
  switch (work.collective->number) {
    case GRADBUS_REDUCE: return {extent.total, is_root ? extent.total : 0, extent.total, false};
    case GRADBUS_REDUCESCATTER: return {extent.total, extent.count, extent.total, false};
    case GRADBUS_SCATTER: return {is_root ? extent.total : 0, extent.count, extent.count, false};
    case GRADBUS_ALLGATHER:
    case GRADBUS_GATHER: return {extent.count, 0, extent.count, false};
    case GRADBUS_ALLTOALL: return {extent.total, 0, extent.total, false};
    default: return {extent.total, 0, extent.total, true};
  }
}

struct Piece {
  Shape shape;
  Extent extent;
  std::string name;
  Buffer input;
  Buffer output;

  std::span<std::byte> result() const { return shape.in_place ? input.span() : output.span(); }
};

class PrivateBenchmark final : public Benchmark {
 public:
  PrivateBenchmark(gradbus_session* session, const BenchWork& work, std::vector<Piece> pieces)
      : session_(session),
        collective_(work.collective->number),
        element_bytes_(dtype_bytes(work.dtype)),
        rank_(gradbus_rank(session)),
        ranks_(work.ranks),
        root_(work.root),
        pieces_(std::move(pieces)) {
    for (const Piece& piece : pieces_) operations_.push_back(operation_of(work, piece));
  }
  ~PrivateBenchmark() override { gradbus_handle_free(handle_); }

  void fill(const KnownData& known) override {
    const bool has_input = collective_ != GRADBUS_BROADCAST || rank_ == root_;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      pieces_[i].output.set(kRubbish);
      if (has_input) {
        known.fill(rank_, first_of(i), pieces_[i].input.span());
      } else {
        pieces_[i].input.set(kRubbish);
      }
    }
  }

  void zero() override {
    for (const Piece& piece : pieces_) piece.input.set(0);
  }

  Status run() override {
    gradbus_handle_free(std::exchange(handle_, nullptr));
    GRADBUS_RETURN_IF_ERROR(to_status(
        gradbus_start_operations(session_, operations_.data(), operations_.size(), &handle_)));
    return to_status(gradbus_handle_wait(handle_, -1));
  }

  uint64_t count_wrong(const KnownData& known) const override {
    uint64_t wrong = 0;
    for (size_t i = 0; i < pieces_.size(); ++i) wrong += count_wrong_of(known, i);
    return wrong;
  }

 private:
  gradbus_operation operation_of(const BenchWork& work, const Piece& piece) const;
  uint64_t count_wrong_of(const KnownData& known, size_t index) const;
  uint64_t count_wrong_blocks(const KnownData& known, size_t index, uint64_t first) const;

  gradbus_session* session_;
  int collective_;
  size_t element_bytes_;
  int rank_;
  int ranks_;
  int root_;
  std::vector<Piece> pieces_;
  std::vector<gradbus_operation> operations_;
  gradbus_handle* handle_ = nullptr;  // of the last run: some outputs belong to it
};

gradbus_operation PrivateBenchmark::operation_of(const BenchWork& work, const Piece& piece) const {
  gradbus_operation operation;
  gradbus_operation_init(&operation, static_cast<gradbus_collective>(collective_));
  operation.name = piece.name.c_str();
  operation.in = piece.input.span().data();
  operation.out = piece.result().data();
  operation.count = piece.shape.count;
  operation.dtype = static_cast<gradbus_dtype>(work.dtype);
  if (work.collective->reduces) operation.op = static_cast<gradbus_op>(work.op);
  operation.root = work.root;
  operation.input_stays = 1;
  return operation;
}

uint64_t PrivateBenchmark::count_wrong_of(const KnownData& known, size_t index) const {
  const std::span<const std::byte> result = pieces_[index].result();
  const uint64_t first = first_of(index);
  const uint64_t own_block = first + static_cast<uint64_t>(rank_) * pieces_[index].extent.count;
  switch (collective_) {
    case GRADBUS_ALLREDUCE: return known.count_wrong(KnownData::kResult, first, result);
    case GRADBUS_REDUCE:
      return rank_ == root_ ? known.count_wrong(KnownData::kResult, first, result) : 0;
    case GRADBUS_REDUCESCATTER: return known.count_wrong(KnownData::kResult, own_block, result);
    case GRADBUS_BROADCAST: return known.count_wrong(root_, first, result);
    case GRADBUS_SCATTER: return known.count_wrong(root_, own_block, result);
    case GRADBUS_GATHER: return rank_ == root_ ? count_wrong_blocks(known, index, first) : 0;
    case GRADBUS_ALLGATHER: return count_wrong_blocks(known, index, first);
    default: return count_wrong_blocks(known, index, own_block);
  }
}

// Of each rank one block, whose elements were `first`, first + 1, ... there.
uint64_t PrivateBenchmark::count_wrong_blocks(const KnownData& known, size_t index,
                                              uint64_t first) const {
  const Extent& extent = pieces_[index].extent;
  const void* data = nullptr;
  uint64_t bytes = 0;
  const gradbus_code code = gradbus_handle_output_at(handle_, index, &data, &bytes, nullptr);
  if (code != GRADBUS_OK || bytes != extent.bytes) return extent.total;
  const std::span<const std::byte> all{static_cast<const std::byte*>(data), bytes};
  const size_t block = extent.count * element_bytes_;
  uint64_t wrong = 0;
  for (int source = 0; source < ranks_; ++source)
    wrong +=
        known.count_wrong(source, first, all.subspan(static_cast<size_t>(source) * block, block));
  return wrong;
}

Status out_of_memory(const Extent& extent) {
  return Status(Code::kExhausted,
                "there is no memory for buffers of " + std::to_string(extent.bytes) + " bytes");
}

}  // namespace

Result<std::unique_ptr<Benchmark>> make_private(gradbus_session* session, const BenchWork& work,
                                                const std::vector<Extent>& extents) {
  const bool is_root = gradbus_rank(session) == work.root;
  const size_t element_bytes = dtype_bytes(work.dtype);
  std::vector<Piece> pieces;
  for (size_t i = 0; i < extents.size(); ++i) {
    const Shape shape = shape_of(work, extents[i], is_root);
    pieces.push_back({shape, extents[i],
                      "bench.private." + std::to_string(i) + "." + std::to_string(extents[i].bytes),
                      Buffer(shape.input * element_bytes), Buffer(shape.output * element_bytes)});
    if (!pieces.back().input.ok() || !pieces.back().output.ok()) return out_of_memory(extents[i]);
  }
  return std::unique_ptr<Benchmark>(
      std::make_unique<PrivateBenchmark>(session, work, std::move(pieces)));
}

}  // namespace gradbus
