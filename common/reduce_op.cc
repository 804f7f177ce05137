#include "common/reduce_op.h"

namespace gradbus {

std::string_view reduce_op_name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kNone: return "none";
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kAverage: return "average";
    case ReduceOp::kMin: return "min";
    case ReduceOp::kMax: return "max";
    case ReduceOp::kProduct: return "product";
    case ReduceOp::kBitAnd: return "bit_and";
    case ReduceOp::kBitOr: return "bit_or";
    case ReduceOp::kAdasum: return "adasum";
  }
  return "?";
}

}  // namespace gradbus
