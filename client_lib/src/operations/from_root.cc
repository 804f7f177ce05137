// Broadcast and scatter: the root fills the tensor's block, or one block per rank; the others read.
#include "client_lib/src/operations/kinds.h"

namespace gradbus {
namespace {

class FromRootOperation final : public StagedOperation {
 public:
  FromRootOperation(Session& session, const OperationRequest& request)
      : StagedOperation(session, request.spec, buffers(session, request)) {}

 protected:
  bool ready_to_write() override { return !is_root() || tensor().writable(); }

  uint64_t copy_in() override {
    for (uint64_t block = 0; block * spec().bytes() < input_bytes(); ++block)
      copy_bytes(tensor().local_reduction().rank_buffer(static_cast<uint32_t>(block)),
                 input() + block * spec().bytes(), spec().bytes());
    return 0;
  }

  // The root of a broadcast in place has its result already.
  void copy_out() override {
    const bool scatter = spec().kind == CollectiveKind::kScatter;
    const bool there = is_root() && !scatter && result() == input();
    const uint32_t block = scatter ? session().rank() : 0;
    if (result() != nullptr && !there)
      copy_bytes(result(), tensor().local_reduction().rank_buffer(block), spec().bytes());
    tensor().local_reduction().consume(session().joined().local_rank, tensor().round());
  }

 private:
  static Buffers buffers(Session& session, const OperationRequest& request) {
    if (session.rank() != request.spec.root) return {nullptr, 0, request.out};
    const void* in = request.in == nullptr ? request.out : request.in;
    const uint64_t blocks = block_count(request.spec.kind, session.world_size());
    return {in, request.spec.bytes() * blocks, request.out, request.input_stays};
  }
};

}  // namespace

std::shared_ptr<Operation> make_from_root(Session& session, const OperationRequest& request) {
  return std::make_shared<FromRootOperation>(session, request);
}

}  // namespace gradbus
