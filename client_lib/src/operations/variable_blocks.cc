#include "client_lib/src/operations/variable_blocks.h"

#include <algorithm>
#include <bit>

#include "common/errors.h"
#include "proto/tensor_names.h"

namespace gradbus {
namespace {

constexpr uint64_t kCapacityLeast = 64;
constexpr uint64_t kTensorBytes = 64 << 20;

}  // namespace

VariableBlocks::VariableBlocks(Session& session, const OperationRequest& request,
                               std::vector<uint64_t> own_lengths)
    : StagedOperation(session, lengths_spec(request.spec, own_lengths.size()),
                      {request.in, request.spec.bytes(), nullptr, request.input_stays}),
      asked_(request.spec),
      own_lengths_(std::move(own_lengths)) {}

TensorSpec VariableBlocks::lengths_spec(const TensorSpec& asked, uint64_t lengths) {
  TensorSpec spec{asked.name + std::string(kLengthsSuffix), lengths, DType::kI64, ReduceOp::kNone,
                  CollectiveKind::kAllGather};
  spec.shape = shape_with_dtype(asked);
  return spec;
}

// Lengths come from other processes; a wrong one is an error here and nowhere else.
Result<TensorSpec> VariableBlocks::blocks_spec() const {
  if (longest_ > kTensorBytesMax / dtype_bytes(asked_.dtype))
    return error("O904", std::string(collective_name(asked_.kind)) + " of tensor \"" + asked_.name +
                             "\": a rank brings " + std::to_string(longest_) + " elements");
  TensorSpec spec = asked_;
  const uint64_t blocks = block_count(asked_.kind, counts_.size());
  const uint64_t most = std::bit_floor(kTensorBytes / (blocks * dtype_bytes(asked_.dtype)) | 1);
  const uint64_t wanted = std::bit_ceil(longest_);
  spec.count = std::max(std::min(wanted, most), kCapacityLeast);
  spec.name.append(kBlocksSuffix).append(std::to_string(spec.count));
  return spec;
}

uint64_t VariableBlocks::copy_in() {
  if (blocks_) return write_blocks();
  const uint64_t bytes = own_lengths_.size() * sizeof(uint64_t);
  copy_bytes(tensor().data(), own_lengths_.data(), bytes);
  return bytes;
}

void VariableBlocks::copy_out() {
  blocks_ ? read_blocks() : read_lengths();
  tensor().local_reduction().consume(session().joined().local_rank, tensor().round());
}

void VariableBlocks::read_lengths() {
  counts_.resize(session().world_size());
  std::vector<uint64_t> lengths(own_lengths_.size());
  for (uint32_t rank = 0; rank < session().world_size(); ++rank) {
    copy_bytes(lengths.data(), tensor().local_reduction().rank_buffer(rank),
               lengths.size() * sizeof(uint64_t));
    counts_[rank] = lengths[index_here()];
    longest_ = std::max(longest_, *std::max_element(lengths.begin(), lengths.end()));
  }
}

VariableBlocks::Piece VariableBlocks::piece(uint64_t length) const {
  const uint64_t first = std::min(done_, length);
  return {first, std::min(length - first, spec().count)};
}

void VariableBlocks::read_blocks() {
  if (!receives()) return;
  const size_t element_bytes = dtype_bytes(spec().dtype);
  if (done_ == 0) {
    uint64_t elements = 0;
    for (const uint64_t count : counts_) elements += count;
    output_at_ = allocate_output(elements * element_bytes);
  }
  std::byte* target = output_at_;
  for (uint32_t rank = 0; rank < session().world_size(); ++rank) {
    const auto [first, elements] = piece(counts_[rank]);
    copy_bytes(target + first * element_bytes, block_from(rank), elements * element_bytes);
    target += counts_[rank] * element_bytes;
  }
}

bool VariableBlocks::same_tensor_again() {
  if (!blocks_) return false;
  done_ += spec().count;
  return done_ < longest_;
}

bool VariableBlocks::last_round(Status& status) {
  if (blocks_ || longest_ == 0) return true;
  blocks_ = true;
  Result<TensorSpec> spec = blocks_spec();
  status = spec.ok() ? use(spec.take()) : spec.status();
  return false;
}

}  // namespace gradbus
