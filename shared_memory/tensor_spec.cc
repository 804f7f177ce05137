#include "shared_memory/tensor_spec.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "common/errors.h"
#include "common/policy/sync_mode.h"
#include "common/utf8.h"
#include "proto/budget.h"

namespace gradbus {

namespace {

bool is_shape(const std::string& text) {
  constexpr std::string_view kAllowed = "0123456789[],*abcdefghijklmnopqrstuvwxyz";
  return text.size() <= kShapeBytesMax && text.find_first_not_of(kAllowed) == text.npos;
}

// Adasum uses other collectives, so no tensor is registered for it.
Status check_operation(const TensorSpec& spec, const std::string& who) {
  if (!is_reduce_op(static_cast<uint32_t>(spec.op)) || spec.op == ReduceOp::kAdasum ||
      reduces(spec.kind) == (spec.op == ReduceOp::kNone))
    return error("O900", who + ": op number " + std::to_string(static_cast<int>(spec.op)) +
                             " does not fit " + std::string(collective_name(spec.kind)));
  if (!op_fits_dtype(spec.op, spec.dtype))
    return error("O900", who + ": " + std::string(reduce_op_name(spec.op)) +
                             " is not defined for " + std::string(dtype_name(spec.dtype)));
  const bool scaled = spec.prescale != 1 || spec.postscale != 1;
  if (scaled && (!reduces(spec.kind) || !is_float(spec.dtype)))
    return error("O900", who + ": scale factors need a reduction of floats, this is " +
                             std::string(collective_name(spec.kind)) + " of " +
                             std::string(dtype_name(spec.dtype)));
  if (!std::isfinite(spec.prescale) || !std::isfinite(spec.postscale))
    return error("O900", who + ": a scale factor is not a finite number");
  if (!is_utf8(spec.compression))
    return error("O910", who + ": the text of its compression is not valid UTF-8");
  if (spec.compression.size() > kCompressionBytesMax)
    return error("O910", who + ": the text of its compression has " +
                             std::to_string(spec.compression.size()) + " bytes, allowed are " +
                             std::to_string(kCompressionBytesMax));
  if (!is_shape(spec.shape))
    return error("O900", who + ": the text of its shape is not of the form [2,4]");
  if (spec.row_elements == 0 || spec.count % spec.row_elements != 0)
    return error("O900", who + ": " + std::to_string(spec.count) +
                             " elements are not whole rows of " +
                             std::to_string(spec.row_elements));
  return {};
}

Status check_mode(const TensorSpec& spec, const std::string& who) {
  if (spec.mode.empty()) return {};
  const Result<SyncMode> mode = parse_mode(spec.mode);
  if (!mode.ok()) return mode.status().with_context(who);
  const auto wrong = [&](const std::string& what) {
    return error("O911", who + ": mode " + spec.mode + " " + what);
  };
  if (spec.kind != CollectiveKind::kAllReduce)
    return wrong("is for all-reduces, this is a " + std::string(collective_name(spec.kind)));
  if (!mode.value().holds_parameters()) return {};
  const bool sums = spec.op == ReduceOp::kSum || spec.op == ReduceOp::kAverage;
  if (spec.dtype != DType::kF32 || !sums || spec.prescale != 1 || spec.postscale != 1)
    return wrong("steps on the sum or the average of float32 gradients, unscaled");
  return {};
}

Status check_budget(const TensorSpec& spec, const std::string& who) {
  if (spec.budget_bytes > kBudgetBytesMax)
    return error("O900", who + ": a budget of " + std::to_string(spec.budget_bytes) +
                             " bytes in flight; at most " + std::to_string(kBudgetBytesMax) +
                             " are allowed");
  if (spec.budget_bytes > 0 && !(spec.mode.empty() && reduces(spec.kind)))
    return error("O911", who + ": a budget of bytes in flight is for reductions in mode sync",
                 "leave out the budget, or the mode");
  return {};
}

}  // namespace

std::string signature_of(const TensorSpec& spec) {
  std::string text = std::string(collective_name(spec.kind)) + "." +
                     std::string(dtype_name(spec.dtype)) + "." +
                     std::string(reduce_op_name(spec.op)) + "." +
                     std::to_string(has_common_count(spec.kind) ? spec.count : 0) + ".root" +
                     std::to_string(spec.root);
  if (spec.row_elements != 1) text += ".row" + std::to_string(spec.row_elements);
  if (!spec.shape.empty()) text += "." + spec.shape;
  if (!spec.compression.empty()) text += "." + spec.compression;
  if (spec.prescale == 1 && spec.postscale == 1) return text;
  char scales[64];
  std::snprintf(scales, sizeof(scales), ".scaled%a*%a", spec.prescale, spec.postscale);
  return text + scales;
}

std::string unnamed_tensor(const std::string& signature, uint64_t number) {
  constexpr uint64_t kInTurn = 4;
  return signature + "#" + std::to_string(number % kInTurn);
}

bool is_unnamed(const TensorSpec& spec) {
  return spec.name.size() > 1 &&
         spec.name.substr(0, spec.name.size() - 1) == signature_of(spec) + "#";
}

Status check_spec(const TensorSpec& spec, uint32_t world_size) {
  const std::string who = "tensor \"" + spec.name.substr(0, kTensorNameBytesMax) + "\"";
  if (spec.name.empty() || spec.name.size() > kTensorNameBytesMax)
    return error("O900", who + ": the name has " + std::to_string(spec.name.size()) +
                             " bytes, allowed are 1.." + std::to_string(kTensorNameBytesMax));
  if (!is_utf8(spec.name)) return error("O900", "tensor: the name is not valid UTF-8");
  if (!is_dtype(static_cast<uint32_t>(spec.dtype)))
    return error("O900",
                 who + ": dtype number " + std::to_string(static_cast<int>(spec.dtype)) +
                     " is unknown; this version knows 1 to " + std::to_string(kDTypeLast),
                 "take one of this version, or install the version that knows it everywhere");
  GRADBUS_RETURN_IF_ERROR(check_operation(spec, who));
  GRADBUS_RETURN_IF_ERROR(check_mode(spec, who));
  if (spec.root >= world_size)
    return error("O900", who + ": root " + std::to_string(static_cast<int32_t>(spec.root)) +
                             " is not a rank of 0.." + std::to_string(world_size - 1));
  if (spec.count > kTensorBytesMax / dtype_bytes(spec.dtype))
    return error("O904", who + ": " + std::to_string(spec.count) + " elements; at most " +
                             std::to_string(kTensorBytesMax >> 30) + " GiB are allowed");
  if (const uint32_t most = std::max(spec.priority, spec.result_priority); most > kPriorityMax)
    return error("O900", who + ": priority " + std::to_string(most) + "; allowed are 0.." +
                             std::to_string(kPriorityMax));
  return check_budget(spec, who);
}

}  // namespace gradbus
