// What all ranks of a job must agree on before a tensor can be exchanged.
#pragma once

#include <cstdint>
#include <string>

#include "common/exchange_mode.h"
#include "common/status.h"
#include "proto/numbers.h"

namespace gradbus {

struct TensorSpec {
  std::string name;
  uint64_t count = 0;  // elements; collectives that move blocks: the most that one block holds
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  CollectiveKind kind = CollectiveKind::kAllReduce;
  uint32_t root = 0;          // of the kinds that have one
  uint64_t row_elements = 1;  // reduce-scatter: never cut between shards; divides count
  double before = 1;          // floats: inputs are multiplied by this, the result by `after`
  double after = 1;
  std::string compression = {};  // "topk:ratio=0.01"; "": dense. Read by the agent
  uint64_t columns = 0;          // compression: of the tensor seen as a matrix; 0: a vector
  std::string mode = {};         // "ps:sync", canonical (common/exchange_mode.h); "": sync
  // Of more than one dimension, compared between ranks: "[2,4]", with "*" where ranks may differ.
  // Of a tensor that carries another one's lengths, with that one's dtype: "f32[*,4]".
  std::string shape = {};

  bool operator==(const TensorSpec&) const = default;
  uint64_t bytes() const { return count * dtype_bytes(dtype); }
  // The agent carries its rounds elsewhere, in a job on so many nodes.
  bool leaves_node(uint32_t agents) const { return agents > 1 || is_on_shards(mode); }
};

// The shape of a tensor that carries something else of `spec`: "f32[*,4]"; "" of one dimension.
inline std::string shape_with_dtype(const TensorSpec& spec) {
  return spec.shape.empty() ? "" : std::string(dtype_name(spec.dtype)) + spec.shape;
}

// GB-O900 / O904 naming the field when no job of `world_size` ranks can have such a tensor.
Status check_spec(const TensorSpec& spec, uint32_t world_size);

}  // namespace gradbus
