#include "worker_agent/data/ordered_starts.h"

#include "proto/numbers.h"
#include "proto/tensor_ids.h"

namespace gradbus {

Status OrderedStarts::add(uint32_t tensor, const StartOrder::Limits& limits, JobLinks& links) {
  if (job_.agents < 2) return {};
  order_.add(tensor, limits);
  for (uint32_t peer = first_peer(); peer <= last_peer(); ++peer) {
    links.expect_credits(peer, 1);
    GRADBUS_RETURN_IF_ERROR(links.expect_sends(peer, 1));
  }
  Status status;
  std::erase_if(early_, [&](const EarlyFrame& early) {
    if (early.header.tensor != tensor) return false;
    if (status.ok()) status = on_frame(early.from, early.header);
    return true;
  });
  return status;
}

void OrderedStarts::remove(uint32_t tensor, JobLinks& links) {
  order_.remove(tensor);
  for (uint32_t peer = first_peer(); peer <= last_peer(); ++peer) {
    links.forget_sends(peer, 1);
    links.forget_credits(peer, tensor, 1);
  }
}

Status OrderedStarts::ready(uint32_t tensor, uint64_t round, JobLinks& links) {
  GRADBUS_RETURN_IF_ERROR(order_.ready(tensor, round));
  if (!order_.leads()) send(0, {tensor, round, 0}, links);
  return {};
}

Status OrderedStarts::on_frame(uint32_t from, const FrameHeader& header) {
  if (!has(header.tensor)) {  // that node registered it a little earlier
    if (header.tensor < kTensorIdsMax && early_.size() < kTensorsMax)
      early_.push_back({from, header});
    return {};
  }
  const Status status = from == 0 ? order_.on_turn({header.tensor, header.step, header.total})
                                  : order_.on_ready(from, header.tensor, header.step);
  return status.with_context("job \"" + job_.name + "\"");
}

std::optional<uint32_t> OrderedStarts::next(JobLinks& links) {
  const std::optional<StartOrder::Turn> turn = order_.next();
  count();
  if (!turn) return {};
  for (uint32_t peer = 1; order_.leads() && peer < job_.agents; ++peer) send(peer, *turn, links);
  return turn->tensor;
}

void OrderedStarts::send(uint32_t peer, const StartOrder::Turn& turn, JobLinks& links) const {
  FrameHeader header;
  header.kind = static_cast<uint8_t>(FrameKind::kCredit);
  header.operation = kStartOperation;
  header.source = job_.agent_index;
  header.job = job_.job;
  header.epoch = job_.epoch;
  header.tensor = turn.tensor;
  header.step = turn.round;
  header.total = turn.number;
  links.send_credit(peer, header);
}

void OrderedStarts::count() const {
  if (order_.bytes_in_flight_max() == 0) return;
  job_.traffic->budget_bytes.set(order_.bytes_in_flight());
  job_.traffic->budget_bytes_max.set(order_.bytes_in_flight_max());
  job_.traffic->budget_delays.set(order_.delayed());
}

}  // namespace gradbus
