// Reductions of large private buffers on one node: one copy in, none out.
//
// Each rank has a ring of kSlots slots in shared memory (a block of a registered all-gather tensor)
// and copies its input into it chunk by chunk. Chunk n, counted from the tensor's registration over
// all its operations, lies in slot n % kSlots of every rank. When all ranks have posted it, each
// one reduces it from all slots, in rank order, straight into its own output: the same arithmetic
// everywhere, so the same bits. Slots stay in the cache, so memory sees the input read and the
// output written, and no staging copy of the tensor exists.
//
//   posted[r]   = n   rank r's part of chunk n is in its slot
//   consumed[r] = n   rank r has read chunk n from all slots: they may be overwritten
//
// It never deadlocks: a rank posts chunk n when all have consumed n - kSlots, and consumes it when
// all have posted it. So of the smallest chunk that somebody has not consumed, every rank can post
// its part and then consume it without any other condition. That needs every rank to be in the
// library from time to time, waiting for this operation or any other (Session::progress), as the
// registration of a tensor does too.
//
// The ring does not depend on the operation, so ranks that disagree are found here: the first chunk
// of an operation carries what the rank asks for, and nobody posts a second one before all have
// been compared. All come to the same answer, having used up one chunk.
#include <algorithm>
#include <array>

#include "client_lib/src/operations/kinds.h"
#include "common/errors.h"

namespace gradbus {
namespace {

// 2 MiB a rank. With two and four ranks on two cores with 0.5 MiB of L2 each and 32 MiB of L3,
// slots of 64 KiB are 10 % to 40 % slower (hand-overs), 3 slots instead of 8 are 10 % slower.
constexpr uint64_t kSlots = 8;
constexpr uint64_t kSlotBytes = 256 << 10;
// Smaller ones are staged: one hand-over instead of one per chunk, in memory that stays in the
// cache anyway. There 4 MiB take 0.9 ms staged and 1.2 ms streamed, 16 MiB 14 and 11, 64 MiB 62
// and 42.
constexpr uint64_t kStreamBytesMin = 8 << 20;

// What a rank asks for, in front of the data of a slot.
struct Announcement {
  uint64_t count;
  uint64_t row_elements;
  uint32_t kind;
  uint32_t root;
  uint32_t dtype;
  uint32_t op;
  double prescale;
  double postscale;

  bool operator==(const Announcement&) const = default;
};
constexpr uint64_t kSlotStride = kSlotBytes + kDataAlignBytes;
static_assert(sizeof(Announcement) <= kDataAlignBytes);
// The blocks of two ranks must not lie a power of two apart (see kRankBufferStaggerBytes).
constexpr uint64_t kAnnouncedBytes = kSlots * kSlotStride + kRankBufferStaggerBytes;

Announcement announcement_of(const TensorSpec& spec) {
  return {spec.count,
          spec.row_elements,
          static_cast<uint32_t>(spec.kind),
          spec.root,
          static_cast<uint32_t>(spec.dtype),
          static_cast<uint32_t>(spec.op),
          spec.prescale,
          spec.postscale};
}

// As the coordinator says it of registered tensors: "f32[1000] all_reduce sum", and what is
// unusual.
std::string announcement_text(const Announcement& asked) {
  const auto kind = static_cast<CollectiveKind>(asked.kind);
  std::string text(dtype_name(static_cast<DType>(asked.dtype)));
  text.append("[").append(std::to_string(asked.count)).append("] ").append(collective_name(kind));
  text.append(" ").append(reduce_op_name(static_cast<ReduceOp>(asked.op)));
  if (has_root(kind)) text.append(" root ").append(std::to_string(asked.root));
  if (asked.row_elements != 1) text.append(" rows of ").append(std::to_string(asked.row_elements));
  if (asked.prescale != 1 || asked.postscale != 1)
    text.append(" scaled by ")
        .append(std::to_string(asked.prescale))
        .append(" before and ")
        .append(std::to_string(asked.postscale))
        .append(" after");
  return text;
}

class StreamedOperation final : public Operation {
 public:
  StreamedOperation(Session& session, const OperationRequest& request)
      : Operation(session, ring_spec(request.spec),
                  {request.in, request.spec.bytes(), request.out, request.input_stays}),
        asked_(request.spec),
        part_(result_part(session, asked_)),
        chunk_elements_(kSlotBytes / dtype_bytes(asked_.dtype)),
        chunks_((asked_.count + chunk_elements_ - 1) / chunk_elements_),
        how_(last_reduction(asked_, session.world_size())) {
    how_.prescale = asked_.prescale;
  }

 protected:
  bool needs_input_later() const override { return true; }
  bool streams() const override { return true; }

  Status start_round() override {
    session().channel().count_operation(asked_.bytes());
    session().streams().begin(local_reduction());
    base_ = tensor().round();
    return {};
  }

  bool attempt_round() override {
    if (local_reduction().failure() != Code::kOk) return true;
    bool moved = true;
    while (moved && consumed_ < chunks_ && refusal_.ok()) {
      moved = post_next();
      moved = consume_next() || moved;
      if (moved) session().operations().note_progress();
    }
    return consumed_ == chunks_ || !refusal_.ok();
  }

  Status end_round() override {
    session().streams().end(local_reduction());
    if (consumed_ < chunks_ && refusal_.ok()) return session().waits().why_failed();
    tensor().skip_rounds(consumed_);
    return {};
  }

  bool last_round(Status& status) override {
    status = refusal_;
    return true;
  }

  uint64_t awaited_round() override { return base_ + consumed_ + 1; }

 private:
  static TensorSpec ring_spec(const TensorSpec& asked) {
    TensorSpec spec{asked.name + "#stream", kAnnouncedBytes, DType::kU8, ReduceOp::kNone,
                    CollectiveKind::kAllGather};
    spec.shape = shape_with_dtype(asked);
    return spec;
  }

  LocalReduction& local_reduction() { return tensor().local_reduction(); }
  std::byte* slot(uint32_t rank, uint64_t chunk) {
    return local_reduction().rank_buffer(rank) + (base_ + chunk) % kSlots * kSlotStride;
  }
  uint64_t first_element(uint64_t chunk) const { return (chunk - 1) * chunk_elements_; }
  uint64_t end_element(uint64_t chunk) const {
    return std::min(chunk * chunk_elements_, asked_.count);
  }

  // Each returns true when it did something.
  bool post_next();
  bool consume_next();
  void reduce_chunk(uint64_t chunk);
  void compare();

  const TensorSpec asked_;
  const ResultPart part_;
  const uint64_t chunk_elements_;
  const uint64_t chunks_;
  Reduction how_;
  uint64_t base_ = 0;  // chunks of this tensor before the operation
  uint64_t posted_ = 0;
  uint64_t consumed_ = 0;
  Status refusal_;
};

bool StreamedOperation::post_next() {
  const uint64_t chunk = posted_ + 1;
  const bool compared = posted_ == 0 || consumed_ > 0;
  if (chunk > chunks_ || !compared) return false;
  if (base_ + chunk > kSlots && !local_reduction().all_consumed(base_ + chunk - kSlots))
    return false;
  const size_t element_bytes = dtype_bytes(asked_.dtype);
  std::byte* const target = slot(session().rank(), chunk);
  if (chunk == 1) {
    const Announcement announcement = announcement_of(asked_);
    copy_bytes(target, &announcement, sizeof(announcement));
  }
  copy_bytes(target + kDataAlignBytes, input() + first_element(chunk) * element_bytes,
             (end_element(chunk) - first_element(chunk)) * element_bytes);
  posted_ = chunk;
  local_reduction().post(session().joined().local_rank, base_ + chunk);
  return true;
}

bool StreamedOperation::consume_next() {
  const uint64_t chunk = consumed_ + 1;
  if (chunk > posted_ || !local_reduction().all_posted(base_ + chunk)) return false;
  if (chunk == 1) compare();
  if (refusal_.ok() && result() != nullptr) reduce_chunk(chunk);
  consumed_ = chunk;
  local_reduction().consume(session().joined().local_rank, base_ + chunk);
  return true;
}

// What of the chunk this rank wants, from every rank's slot.
void StreamedOperation::reduce_chunk(uint64_t chunk) {
  const uint64_t first = std::max(first_element(chunk), part_.first);
  const uint64_t end = std::min(end_element(chunk), part_.first + part_.elements);
  if (first >= end) return;
  const size_t element_bytes = dtype_bytes(asked_.dtype);
  const uint64_t offset = kDataAlignBytes + (first - first_element(chunk)) * element_bytes;
  std::array<const std::byte*, kLocalRanksMax> sources;
  for (uint32_t rank = 0; rank < session().world_size(); ++rank)
    sources[rank] = slot(rank, chunk) + offset;
  std::byte* const target = result() + (first - part_.first) * element_bytes;
  reduce(asked_.dtype, how_, {sources.data(), session().world_size()}, {&target, 1}, end - first);
}

void StreamedOperation::compare() {
  std::array<Announcement, kLocalRanksMax> asked;
  for (uint32_t rank = 0; rank < session().world_size(); ++rank) {
    copy_bytes(&asked[rank], slot(rank, 1), sizeof(Announcement));
    if (asked[rank] == asked[0]) continue;
    refusal_ = error("O902", "tensor \"" + asked_.name + "\": rank 0 registered " +
                                 announcement_text(asked[0]) + ", rank " + std::to_string(rank) +
                                 " " + announcement_text(asked[rank]));
    return;
  }
}

}  // namespace

bool may_stream(const Session& session, const OperationRequest& request) {
  return reduces(request.spec.kind) && session.joined().agents == 1 &&
         session.joined().local_size > 1 && request.spec.bytes() >= kStreamBytesMin;
}

std::shared_ptr<Operation> make_streamed(Session& session, const OperationRequest& request) {
  return std::make_shared<StreamedOperation>(session, request);
}

}  // namespace gradbus
