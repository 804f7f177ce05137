#include "client_lib/src/mode_changes.h"

#include "client_lib/src/operation.h"

namespace gradbus {

Result<std::optional<ModeChange>> next_mode_change(Session& session) {
  const int64_t heard = session.mode_changes_heard();
  int64_t heard_by_all = 0;
  OperationRequest request;
  request.spec = {"gradbus.mode_changes", 1, DType::kI64, ReduceOp::kMin,
                  CollectiveKind::kAllReduce};
  request.in = &heard;
  request.out = &heard_by_all;
  GRADBUS_RETURN_IF_ERROR(make_operation(session, request)->run());
  return session.take_mode_change(heard_by_all);
}

}  // namespace gradbus
