#include "worker_agent/collectives/ring_collective.h"

#include <algorithm>

#include "common/check.h"
#include "common/errors.h"

namespace gradbus {
namespace {

// The checksums were right, so cables are not the first suspect: the two sides disagree.
constexpr std::string_view kNext = "check that all agents run one version: gradbus status";

Status refuse_credit(uint64_t round, std::string_view why) {
  return error("D601", "credit for round " + std::to_string(round) + std::string(why), kNext);
}

}  // namespace

RingCollective::RingCollective(const CollectivePlan& plan, RingEdges edges, size_t pieces_max)
    : plan_(plan),
      edges_(edges),
      chunk_bytes_(plan.chunk_elements * dtype_bytes(plan.dtype)),
      ready_(pieces_max) {
  GRADBUS_CHECK(plan.agents >= 2 && plan.agent_index < plan.agents);
  GRADBUS_CHECK(plan.chunk_elements >= 1 && chunk_bytes_ <= kFramePayloadBytesMax);
}

void RingCollective::begin(uint64_t round, std::span<const uint64_t> block_bytes,
                           std::vector<Action>& actions) {
  GRADBUS_CHECK(!active_ && round == begun_ + 1);
  begun_ = round;
  active_ = true;
  if (edges_.receives) actions.push_back({.kind = Action::Kind::kCredit, .round = round});
  open_round(block_bytes, actions);
}

void RingCollective::on_chunk_reduced(uint32_t, std::vector<Action>&) {
  GRADBUS_CHECK(plan_.kind == CollectiveKind::kAllReduce);
}

Status RingCollective::on_frame(const FrameHeader& header, uint32_t buffer,
                                std::vector<Action>& actions) {
  GRADBUS_RETURN_IF_ERROR(check_signature(header));
  GRADBUS_RETURN_IF_ERROR(check_piece(header));
  accept_frame(header, buffer, actions);
  finish_if_done(actions);
  return {};
}

Status RingCollective::on_credit(uint64_t round, std::vector<Action>& actions) {
  if (!edges_.sends) return refuse_credit(round, ", but nothing is ever sent on this link");
  if (round != credited_ + 1 || round > begun_ + 1) {
    return refuse_credit(round, " after the one for round " + std::to_string(credited_) +
                                    ", while this agent is in round " + std::to_string(begun_));
  }
  credited_ = round;
  send_ready(actions);
  return {};
}

void RingCollective::on_sent(const Action& send, std::vector<Action>& actions) {
  GRADBUS_CHECK(active_ && in_flight_ > 0);
  --in_flight_;
  finish_send(send, actions);
  send_ready(actions);
  finish_if_done(actions);
}

void RingCollective::make_ready(Piece piece, std::vector<Action>& actions) {
  GRADBUS_CHECK(ready_count_ < ready_.size());
  ready_[(ready_head_ + ready_count_) % ready_.size()] = piece;
  ++ready_count_;
  send_ready(actions);
}

void RingCollective::send_ready(std::vector<Action>& actions) {
  for (; ready_count_ > 0 && may_send(); --ready_count_) {
    actions.push_back(start_send(ready_[ready_head_]));
    ready_head_ = (ready_head_ + 1) % ready_.size();
    ++in_flight_;
  }
}

Action RingCollective::chunk_action(Action::Kind kind, Piece piece, uint64_t block_bytes) const {
  return {.kind = kind,
          .chunk = piece.chunk,
          .source = piece.source,
          .round = begun_,
          .bytes = bytes_of_chunk(block_bytes, piece.chunk)};
}

void RingCollective::release(uint32_t buffer, std::vector<Action>& actions) const {
  actions.push_back({.kind = Action::Kind::kRelease, .buffer = buffer, .round = begun_});
}

void RingCollective::finish_if_done(std::vector<Action>& actions) {
  if (pieces_open_ > 0) return;
  GRADBUS_CHECK(active_ && in_flight_ == 0 && ready_count_ == 0);
  active_ = false;
  actions.push_back({.kind = Action::Kind::kFinish, .round = begun_});
}

uint32_t RingCollective::chunks_of(uint64_t block_bytes) const {
  return block_bytes == 0 ? 1
                          : static_cast<uint32_t>((block_bytes + chunk_bytes_ - 1) / chunk_bytes_);
}

uint64_t RingCollective::bytes_of_chunk(uint64_t block_bytes, uint32_t chunk) const {
  return std::min(chunk_bytes_, block_bytes - chunk * chunk_bytes_);
}

Status RingCollective::check_signature(const FrameHeader& header) const {
  if (!edges_.receives) return refuse(header, "no data ever comes over this link");
  if (!active_) return refuse(header, "no round has begun here");
  const struct {
    std::string_view name;
    uint64_t value;
    uint64_t expected;
  } fields[] = {
      {"step", header.step, begun_},
      {"collective", header.collective, static_cast<uint64_t>(plan_.kind)},
      {"codec", header.codec, static_cast<uint64_t>(CodecId::kDense)},
      {"dtype", header.dtype, static_cast<uint64_t>(plan_.dtype)},
      {"op", header.op, static_cast<uint64_t>(plan_.op)},
  };
  for (const auto& field : fields) {
    GRADBUS_RETURN_IF_ERROR(expect_field(header, field.name, field.value, field.expected));
  }
  return {};
}

Status RingCollective::check_extent(const FrameHeader& header, uint64_t block_bytes) const {
  GRADBUS_RETURN_IF_ERROR(expect_below(header, "chunk", header.chunk, chunks_of(block_bytes)));
  return expect_field(header, "length", header.length, bytes_of_chunk(block_bytes, header.chunk));
}

Status RingCollective::refuse(const FrameHeader& header, std::string_view what) const {
  const std::string where = "frame of tensor " + std::to_string(header.tensor) + ", round " +
                            std::to_string(header.step) + ", chunk " +
                            std::to_string(header.chunk) + ": ";
  return error("D601", where + std::string(what), kNext);
}

Status RingCollective::expect_field(const FrameHeader& header, std::string_view field,
                                    uint64_t value, uint64_t expected) const {
  if (value == expected) return {};
  return refuse(header, std::string(field) + " is " + std::to_string(value) + ", expected " +
                            std::to_string(expected));
}

Status RingCollective::expect_below(const FrameHeader& header, std::string_view field,
                                    uint64_t value, uint64_t limit) const {
  if (value < limit) return {};
  return refuse(header, std::string(field) + " is " + std::to_string(value) +
                            ", expected less than " + std::to_string(limit));
}

}  // namespace gradbus
