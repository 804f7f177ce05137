// All-to-all: every rank has a block, of any length, for every rank.
#include "client_lib/src/operations/variable_blocks.h"

namespace gradbus {
namespace {

class AllToAllOperation final : public VariableBlocks {
 public:
  AllToAllOperation(Session& session, const OperationRequest& request)
      : VariableBlocks(session, request, request.send_counts) {}

 protected:
  uint64_t write_blocks() override {
    const size_t element_bytes = dtype_bytes(spec().dtype);
    const std::byte* from = input();
    for (uint32_t to = 0; to < session().world_size(); ++to) {
      const auto [first, elements] = piece(own_lengths()[to]);
      copy_bytes(block(session().rank(), to), from + first * element_bytes,
                 elements * element_bytes);
      from += own_lengths()[to] * element_bytes;
    }
    return 0;  // blocks of several lengths
  }
  const std::byte* block_from(uint32_t rank) override { return block(rank, session().rank()); }
  uint64_t index_here() override { return session().rank(); }

 private:
  std::byte* block(uint32_t from, uint32_t to) {
    return tensor().local_reduction().rank_buffer(from * session().world_size() + to);
  }
};

}  // namespace

std::shared_ptr<Operation> make_all_to_all(Session& session, const OperationRequest& request) {
  return std::make_shared<AllToAllOperation>(session, request);
}

}  // namespace gradbus
