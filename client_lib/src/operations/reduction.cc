// All-reduce, reduce and reduce-scatter of a private buffer: in, one round of the local reduction,
// out.
#include "client_lib/src/operations/kinds.h"

namespace gradbus {
namespace {

class ReductionOperation final : public StagedOperation {
 public:
  ReductionOperation(Session& session, const OperationRequest& request)
      : StagedOperation(session, request.spec,
                        {request.in, request.spec.bytes(), request.out, request.input_stays}) {}

 protected:
  uint64_t copy_in() override {
    copy_bytes(tensor().data(), input(), input_bytes());
    return 0;
  }

  void copy_out() override {
    if (result() == nullptr) return;
    const auto [first, elements] = result_part(session(), spec());
    const size_t element_bytes = dtype_bytes(spec().dtype);
    copy_bytes(result(), tensor().data() + first * element_bytes, elements * element_bytes);
  }
};

}  // namespace

ResultPart result_part(const Session& session, const TensorSpec& spec) {
  if (spec.kind == CollectiveKind::kReduce)
    return {0, session.rank() == spec.root ? spec.count : 0};
  if (spec.kind != CollectiveKind::kReduceScatter) return {0, spec.count};
  const ChunkPlan plan{spec.count, spec.row_elements, session.world_size(), 1};
  return {plan.shard_first(session.rank()), plan.shard_elements(session.rank())};
}

std::shared_ptr<Operation> make_reduction(Session& session, const OperationRequest& request) {
  return std::make_shared<ReductionOperation>(session, request);
}

}  // namespace gradbus
