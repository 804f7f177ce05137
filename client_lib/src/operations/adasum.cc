// Adasum (Maleki et al. 2020): the combination of two gradients depends on their scalar products,
// so it cannot be cut into chunks. Every rank gets all whole gradients, by one all-gather, and
// combines them in rank order: the same arithmetic everywhere, so the same bits.
#include "common/kernels/adasum.h"
#include "client_lib/src/operations/kinds.h"

namespace gradbus {
namespace {

class AdasumOperation final : public StagedOperation {
 public:
  AdasumOperation(Session& session, const OperationRequest& request)
      : StagedOperation(session, blocks_spec(request.spec),
                        {request.in, request.spec.bytes(), request.out, request.input_stays}),
        scale_(request.spec.prescale * request.spec.postscale) {}

 protected:
  bool ready_to_write() override { return tensor().writable(); }

  uint64_t copy_in() override {
    copy_bytes(tensor().data(), input(), input_bytes());
    return input_bytes();
  }

  void copy_out() override {
    if (result() != nullptr) combine();
    tensor().local_reduction().consume(session().joined().local_rank, tensor().round());
  }

 private:
  static TensorSpec blocks_spec(const TensorSpec& asked) {
    TensorSpec spec{asked.name + "#adasum", asked.count, asked.dtype, ReduceOp::kNone,
                    CollectiveKind::kAllGather};
    spec.shape = asked.shape;
    return spec;
  }

  // adasum(k * g) = k * adasum(g), so one factor behind it stands for both.
  void combine() {
    std::vector<const std::byte*> gradients(session().world_size());
    for (uint32_t rank = 0; rank < session().world_size(); ++rank)
      gradients[rank] = tensor().local_reduction().rank_buffer(rank);
    std::vector<std::byte> scratch(
        adasum_scratch_bytes(spec().dtype, gradients.size(), spec().count));
    adasum(spec().dtype, gradients, result(), spec().count, scratch);
    if (scale_ == 1) return;
    const std::byte* const source = result();
    std::byte* const target = result();
    reduce(spec().dtype, {.postscale = scale_}, {&source, 1}, {&target, 1}, spec().count);
  }

  const double scale_;
};

}  // namespace

std::shared_ptr<Operation> make_adasum(Session& session, const OperationRequest& request) {
  return std::make_shared<AdasumOperation>(session, request);
}

}  // namespace gradbus
