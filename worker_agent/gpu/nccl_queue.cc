#include "worker_agent/gpu/nccl_queue.h"

#include <algorithm>

#include "common/errors.h"

namespace gradbus {

Status NcclQueue::take_turn(const Turn& turn) {
  const auto known = [&](const Turn& other) { return other.number == turn.number; };
  // Each waiting turn belongs to another tensor of this job.
  if (turn.number < next_turn_ || turn.number - next_turn_ >= kNcclRankBuffersMax ||
      std::ranges::any_of(turns_, known))
    return error("D601", "field total of a frame is turn " + std::to_string(turn.number) +
                             " of NCCL, the next one is " + std::to_string(next_turn_));
  turns_.push_back(turn);
  return {};
}

std::optional<NcclQueue::Ended> NcclQueue::poll(Nanos now) {
  if (!under_way_ && !begin(now)) return std::nullopt;
  if (child_->poll(now) == NcclChild::State::kBusy) return std::nullopt;
  Ended ended = *under_way_;
  under_way_.reset();
  ended.status = child_->status();
  ended.id = child_->id();
  return ended;
}

bool NcclQueue::begin(Nanos now) {
  const auto turn = std::ranges::find(turns_, next_turn_, &Turn::number);
  if (turn != turns_.end()) {
    ++next_turn_;
    under_way_ = Ended{.turn = true, .tensor = turn->tensor};
    // Poll() reports the error again.
    (void)child_->all_reduce(turn->call, NcclOp::kSum, now + patience_);
    turns_.erase(turn);
    return true;
  }
  if (orders_.empty()) return false;
  under_way_ = Ended{.kind = orders_.front().kind, .tensor = orders_.front().tensor};
  (void)give(orders_.front(), now + patience_);
  orders_.pop_front();
  return true;
}

Status NcclQueue::give(const Order& order, Nanos deadline) {
  switch (order.kind) {
    case Order::Kind::kNewId: return child_->new_id(deadline);
    case Order::Kind::kOpen: return child_->open(order.rank_buffer, order.share, device_, deadline);
    case Order::Kind::kConnect:
      return child_->connect(order.id, order.rank, order.ranks, device_, deadline);
  }
  return {};
}

Status nccl_status(const Status& status, const std::string& tensor) {
  const std::string& text = status.message();
  const size_t number = text.find("GB-");
  const size_t end = text.find(": ", number);
  if (status.ok() || number == std::string::npos || end == std::string::npos) return status;
  return Status(status.code(), text.substr(number, end + 2 - number) +
                                   (tensor.empty() ? "" : "tensor \"" + tensor + "\", ") +
                                   text.substr(0, number) + text.substr(end + 2));
}

}  // namespace gradbus
