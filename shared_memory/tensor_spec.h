// The properties of a tensor that all ranks of a job must agree on before an exchange.
#pragma once

#include <cstdint>
#include <string>

#include "common/policy/sync_mode.h"
#include "common/status.h"
#include "proto/numbers.h"

namespace gradbus {

struct TensorSpec {
  std::string name;
  uint64_t count = 0;  // elements; collectives that move blocks: capacity of one block
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  CollectiveKind kind = CollectiveKind::kAllReduce;
  uint32_t root = 0;          // of kinds with a root
  uint64_t row_elements = 1;  // reduce-scatter: never divided between shards; divides count
  double prescale = 1;        // floats: inputs are multiplied by this, the result by `postscale`
  double postscale = 1;
  std::string compression = {};  // "topk:ratio=0.01"; "": dense. Read by the agent
  uint64_t columns = 0;          // compression: of the tensor as a matrix; 0: a vector
  std::string mode = {};         // "ps:sync", canonical (common/policy/sync_mode.h); "": sync
  // For more than one dimension, compared between ranks: "[2,4]", with "*" where ranks may differ.
  // A tensor that carries the lengths of another one has that one's dtype in front: "f32[*,4]".
  std::string shape = {};
  // Between nodes, the frames of smaller numbers are sent first, at most kPriorityMax: those of
  // partial sums, and those of results.
  uint32_t priority = 0;
  uint32_t result_priority = 0;
  // Between nodes, a round starts when rounds in flight of tensors with a budget hold at most this
  // many bytes with it, or when there are none. 0: at once. For mode sync.
  uint64_t budget_bytes = 0;

  bool operator==(const TensorSpec&) const = default;
  uint64_t bytes() const { return count * dtype_bytes(dtype); }
  // Whether the agent carries its rounds to other nodes, in a job on this number of nodes.
  bool leaves_node(uint32_t agents) const { return agents > 1 || is_on_shards(mode); }
};

// The shape of a tensor that carries other data of `spec`: "f32[*,4]"; "" for one dimension.
inline std::string shape_with_dtype(const TensorSpec& spec) {
  return spec.shape.empty() ? "" : std::string(dtype_name(spec.dtype)) + spec.shape;
}

// Whether the count of this kind is the same on all ranks. Of others it is a rank's own.
constexpr bool has_common_count(CollectiveKind kind) {
  return kind != CollectiveKind::kAllGather && kind != CollectiveKind::kGather &&
         kind != CollectiveKind::kAllToAll;
}

// Operations without a name use a few tensors for each signature in turn, so that as many can be
// in flight.
std::string signature_of(const TensorSpec& spec);
std::string unnamed_tensor(const std::string& signature, uint64_t number);
// Its tensor is one of those.
bool is_unnamed(const TensorSpec& spec);

// Returns GB-O900 or O904, naming the field, when no job of `world_size` ranks can have such a
// tensor.
Status check_spec(const TensorSpec& spec, uint32_t world_size);

}  // namespace gradbus
