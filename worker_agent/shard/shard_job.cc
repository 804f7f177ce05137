#include "worker_agent/shard/shard_job.h"

#include <algorithm>
#include <cstring>

#include "common/errors.h"
#include "common/log.h"

namespace gradbus {
namespace {

Nanos earlier(Nanos a, Nanos b) { return a == 0 || (b != 0 && b < a) ? b : a; }

}  // namespace

ShardJob::ShardJob(StartShardJob start, Transport* transport)
    : start_(std::move(start)),
      transport_(transport),
      links_(*transport_, {start_.job, start_.epoch, start_.link_key, start_.agents + start_.shard},
             start_.addresses),
      snapshots_(start_.keeper,
                 {start_.keeper == nullptr ? "" : start_.keeper->directory(), start_.name,
                  start_.run, start_.shard, start_.shards},
                 monotonic_now()) {}

void ShardJob::fail(const Status& status) {
  if (broken_.ok()) broken_ = status;
}

ShardTensor* ShardJob::tensor(uint32_t id) const {
  return id < tensors_.size() ? tensors_[id].get() : nullptr;
}

Status ShardJob::add_tensor(const AddShardTensor& add) {
  const Status added = open_tensor(add);
  if (!added.ok()) {
    lacks_tensor_ = true;
    return added;
  }
  take_held();
  return {};
}

// The only place that allocates: every answer that can be under way has its room from here on.
Status ShardJob::open_tensor(const AddShardTensor& add) {
  GRADBUS_RETURN_IF_ERROR(add.restore_failed);
  Result<std::unique_ptr<ShardTensor>> made = make_shard_tensor(add.plan, *transport_);
  if (!made.ok()) return made.status();
  const uint32_t id = add.plan.collective.tensor;
  if (tensors_.size() <= id) tensors_.resize(id + 1);
  tensors_[id] = made.take();
  if (add.plan.mode.restore) tensors_[id]->restore(add.restored);
  const auto answers = static_cast<uint32_t>(tensors_[id]->answers_max());
  answers_.reserve(std::max<size_t>(answers_.capacity(), size_t{answers} * start_.agents));
  for (uint32_t agent = 0; agent < start_.agents && answers > 0; ++agent)
    GRADBUS_RETURN_IF_ERROR(links_.expect_sends(agent, answers));
  return {};
}

size_t ShardJob::do_work() {
  if (wake_at_ != 0) run_deadlines();
  const size_t copied =
      snapshots_.wake_at() == 0 ? 0 : snapshots_.do_work(monotonic_now(), tensors_);
  return copied + links_.flush();
}

Nanos ShardJob::wake_at() const { return earlier(wake_at_, snapshots_.wake_at()); }

// From here on nothing changes the tensors.
void ShardJob::end() {
  ending_ = true;
  links_.close();
  if (!lacks_tensor_) snapshots_.end(tensors_);
}

void ShardJob::run_deadlines() {
  const Nanos now = monotonic_now();
  if (now < wake_at_) return;
  wake_at_ = 0;
  for (const auto& tensor : tensors_) {
    if (tensor == nullptr) continue;
    const Nanos next = tensor->tick(now, answers_);
    send_answers(*tensor);
    if (next != 0 && (wake_at_ == 0 || next < wake_at_)) wake_at_ = next;
  }
}

// ---- links

void ShardJob::on_accepted(LinkId link, const FrameHeader& hello) {
  if (const Status status = links_.accept(link, hello); !status.ok()) {
    spdlog::warn("job \"{}\": {}", start_.name, status.message());
    transport_->disconnect(link);
  }
}

void ShardJob::on_closed(const TransportEvent& event, const std::string& why) {
  const uint32_t peer = links_.peer_of(event.link);
  links_.on_closed(event.link);
  fail(error(event.code == Code::kCorrupt ? "D601" : "P102",
             "job \"" + start_.name + "\": the link between shard " + std::to_string(start_.shard) +
                 " and agent " + std::to_string(peer) + " ended" +
                 (why.empty() ? "" : " (" + why + ")")));
}

// ---- pushes

Status ShardJob::check_frame(const TransportEvent& event, const FrameHeader& header) const {
  if (header.job == start_.job && header.epoch == start_.epoch && !links_.outgoing(event.link))
    return {};
  return error("D601", "a frame of agent " + std::to_string(links_.peer_of(event.link)) +
                           " is of job " + std::to_string(header.job) + " epoch " +
                           std::to_string(header.epoch) + " kind " + std::to_string(header.kind) +
                           ", its link carries pushes of job " + std::to_string(start_.job) +
                           " epoch " + std::to_string(start_.epoch));
}

void ShardJob::on_received(const TransportEvent& event) {
  if (event.code != Code::kOk || !broken_.ok() || ending_) return;
  FrameHeader header;
  std::memcpy(&header, links_.frame(event.link, event.token, sizeof(header)).data(),
              sizeof(header));
  if (const Status status = check_frame(event, header); !status.ok()) return fail(status);
  start_.traffic->received_bytes.fetch_add(header.length, std::memory_order_relaxed);
  const HeldPush push{links_.peer_of(event.link), links_.buffer_of(event.link, event.token),
                      header};
  if (must_wait(push)) return held_.push_back(push);
  on_push(push);
}

// Bounded by the receive buffers, which the held ones keep.
bool ShardJob::must_wait(const HeldPush& push) const {
  const ShardTensor* of = tensor(push.header.tensor);
  if (of == nullptr) return push.header.tensor < kTensorsMax;
  return of->must_wait(push.agent, push.header);
}

void ShardJob::on_push(const HeldPush& push) {
  ShardTensor* const of = tensor(push.header.tensor);
  if (of == nullptr)
    return fail(error("D601", "field tensor of a push is " + std::to_string(push.header.tensor)));
  const Status status =
      of->on_push(push.agent, push.header, links_.payload(push.buffer), monotonic_now(), answers_);
  if (!status.ok())
    return fail(
        status.with_context("job \"" + start_.name + "\", agent " + std::to_string(push.agent)));
  links_.release(push.buffer);
  send_answers(*of);
  if (of->plan().mode.deadline_ms > 0) wake_at_ = monotonic_now();
}

void ShardJob::take_held() {
  std::vector<HeldPush> ready;
  std::erase_if(held_, [&](const HeldPush& push) {
    if (must_wait(push)) return false;
    ready.push_back(push);
    return true;
  });
  for (const HeldPush& push : ready)
    if (broken_.ok()) on_push(push);
}

// ---- answers

void ShardJob::send_answers(const ShardTensor& tensor) {
  for (const ShardAnswer& answer : answers_) {
    FrameHeader header = tensor.frame(answer);
    header.job = start_.job;
    header.epoch = start_.epoch;
    Action record{.kind = Action::Kind::kSend, .peer = answer.agent, .chunk = answer.chunk};
    record.buffer = answer.buffer;
    record.bytes = answer.bytes;
    links_.send_data(answer.agent, header, tensor.slice(answer), {{header.tensor, 0}, record});
  }
  answers_.clear();
}

void ShardJob::on_sent(const TransportEvent& event) {
  const SendRecord sent = links_.take_sent(event.link, event.token);
  if (event.code != Code::kOk || !broken_.ok()) return;  // kClosed follows and says why
  start_.traffic->sent_bytes.fetch_add(sent.action.bytes, std::memory_order_relaxed);
  ShardAnswer answer;
  answer.agent = sent.action.peer;
  answer.chunk = sent.action.chunk;
  answer.buffer = sent.action.buffer;
  if (ending_) return;
  tensors_[sent.exchange.tensor]->on_sent(answer);
  if (!held_.empty()) take_held();
}

}  // namespace gradbus
