#include "client_lib/src/mode_changes.h"

#include "client_lib/src/operation.h"

namespace gradbus {

Result<std::optional<ModeChange>> next_mode_change(Session& session) {
  session.receive();
  const int64_t received = session.mode_changes().count();
  int64_t received_by_all = 0;
  OperationRequest request;
  request.spec = {"gradbus.mode_changes", 1, DType::kI64, ReduceOp::kMin,
                  CollectiveKind::kAllReduce};
  request.in = &received;
  request.out = &received_by_all;
  GRADBUS_RETURN_IF_ERROR(make_operation(session, request)->run());
  return session.mode_changes().take(received_by_all);
}

}  // namespace gradbus
