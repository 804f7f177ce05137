// All-gather and gather: one block per rank, of any length, for every rank or for the root.
#include "client_lib/src/operations/variable_blocks.h"

namespace gradbus {
namespace {

class GatheringOperation final : public VariableBlocks {
 public:
  GatheringOperation(Session& session, const OperationRequest& request)
      : VariableBlocks(session, request, {request.spec.count}) {}

 protected:
  uint64_t write_blocks() override {
    const size_t element_bytes = dtype_bytes(spec().dtype);
    const auto [first, elements] = piece(own_lengths()[0]);
    copy_bytes(tensor().data(), input() + first * element_bytes, elements * element_bytes);
    return elements * element_bytes;
  }
  const std::byte* block_from(uint32_t rank) override {
    return tensor().local_reduction().rank_buffer(rank);
  }
  uint64_t index_here() override { return 0; }
  bool receives() override { return spec().kind == CollectiveKind::kAllGather || is_root(); }
};

}  // namespace

std::shared_ptr<Operation> make_gathering(Session& session, const OperationRequest& request) {
  return std::make_shared<GatheringOperation>(session, request);
}

}  // namespace gradbus
