#include "server/parameter_server/arriving_payloads.h"

#include <algorithm>
#include <cstring>

#include "data_plane/collectives/frame_check.h"

namespace gradbus {

ShardPlan of_payloads(ShardPlan plan) {
  plan.collective.kind = CollectiveKind::kGather;
  plan.collective.dtype = DType::kU8;
  plan.collective.op = ReduceOp::kNone;
  plan.collective.codec = plan.compression.spec.codec->id;
  plan.collective.chunk_elements = plan.compression.partition_elements;
  plan.collective.parameters = plan.mode.holds_parameters();
  return plan;
}

CodecShape longest_partition(const ShardPlan& plan) {
  return partition_shape(plan.compression, plan.collective.count, 0);
}

Status ArrivingPayloads::check(size_t sender, const FrameHeader& header) const {
  const Sender& from = senders_[sender];
  if (from.frames > 0)
    GRADBUS_RETURN_IF_ERROR(expect_field(header, "total", header.total, from.cut.bytes));
  const PayloadCut cut{header.total};
  GRADBUS_RETURN_IF_ERROR(expect_below(header, "chunk", header.chunk, cut.frames()));
  GRADBUS_RETURN_IF_ERROR(
      expect_field(header, "length", header.length, cut.bytes_of(header.chunk)));
  if (from.frames == 0 || !here_[sender * frames_max_ + header.chunk]) return {};
  return refuse_frame(header, "a part of a payload for the second time");
}

bool ArrivingPayloads::take(size_t sender, const FrameHeader& header,
                            std::span<const std::byte> frame, std::byte* to) {
  Sender& from = senders_[sender];
  const auto first = here_.begin() + static_cast<ptrdiff_t>(sender * frames_max_);
  if (from.frames == 0) {
    from.cut = {header.total};
    std::fill_n(first, from.cut.frames(), false);
  }
  first[header.chunk] = true;
  const uint64_t bytes = from.cut.bytes_of(header.chunk);
  if (bytes > 0 && to != nullptr)
    std::memcpy(to + header.chunk * kPayloadChunkBytes, frame.data(), bytes);
  if (++from.frames < from.cut.frames()) return false;
  from.frames = 0;
  return true;
}

}  // namespace gradbus
