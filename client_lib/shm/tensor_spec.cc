#include "client_lib/shm/tensor_spec.h"

#include "common/errors.h"
#include "common/utf8.h"

namespace gradbus {

Status check_spec(const TensorSpec& spec, uint32_t world_size) {
  const std::string who = "tensor \"" + spec.name.substr(0, kTensorNameBytesMax) + "\"";
  if (spec.name.empty() || spec.name.size() > kTensorNameBytesMax)
    return error("O900", who + ": the name has " + std::to_string(spec.name.size()) +
                             " bytes, allowed are 1.." + std::to_string(kTensorNameBytesMax));
  if (!is_utf8(spec.name)) return error("O900", "tensor: the name is not valid UTF-8");
  if (!is_dtype(static_cast<uint32_t>(spec.dtype)))
    return error("O900", who + ": dtype number " + std::to_string(static_cast<int>(spec.dtype)) +
                             " is unknown");
  const bool reduces = spec.kind == CollectiveKind::kAllReduce;
  if (!is_reduce_op(static_cast<uint32_t>(spec.op)) || reduces == (spec.op == ReduceOp::kNone))
    return error("O900", who + ": op number " + std::to_string(static_cast<int>(spec.op)) +
                             " does not fit " + std::string(collective_name(spec.kind)));
  if (spec.root >= world_size)
    return error("O900", who + ": root " + std::to_string(static_cast<int32_t>(spec.root)) +
                             " is not a rank of 0.." + std::to_string(world_size - 1));
  if (spec.count > kTensorBytesMax / dtype_bytes(spec.dtype))
    return error("O904", who + ": " + std::to_string(spec.count) + " elements; at most " +
                             std::to_string(kTensorBytesMax >> 30) + " GiB are allowed");
  return {};
}

}  // namespace gradbus
