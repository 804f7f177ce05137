// What the agent sends to a session, and the operations that advance with it.
#include <algorithm>

#include "client_lib/src/operation.h"
#include "client_lib/src/session.h"
#include "common/errors.h"

namespace gradbus {

void Session::progress() {
  progress_alone();
  registry_.progress_others(this);
}

void Session::progress_alone() {
  receive_all();
  if (connection_) flush_submissions();
  advance_operations();
}

void Session::advance_operations() {
  std::vector<std::shared_ptr<Operation>> ready;
  {
    const std::lock_guard lock(operations_lock_);
    ready = pending_;
  }
  for (const auto& operation : ready) operation->advance();
  const std::lock_guard lock(operations_lock_);
  std::erase_if(pending_, [](const auto& operation) { return !operation->unfinished(); });
}

bool Session::advance_streams() {
  const uint64_t before = advances_.load(std::memory_order_relaxed);
  advance_operations();
  return advances_.load(std::memory_order_relaxed) != before;
}

void Session::add_pending(std::shared_ptr<Operation> operation) {
  const std::lock_guard lock(operations_lock_);
  std::erase_if(pending_, [](const auto& known) { return !known->unfinished(); });
  pending_.push_back(std::move(operation));
}

uint64_t Session::next_unnamed(const std::string& signature) {
  const std::lock_guard lock(control_);
  return unnamed_[signature]++;
}

void Session::receive_all() {
  const std::lock_guard lock(control_);
  if (!connection_ || failed_.load()) return;
  for (;;) {
    Packet packet;
    Status status = connection_->receive(packet);
    if (status.code() == Code::kBusy) return;
    if (status.ok()) status = handle(packet);
    if (!status.ok()) return fail(status);
  }
}

Status Session::handle(Packet& packet) {
  switch (static_cast<AttachType>(packet.header.type)) {
    case AttachType::kSegment: return add_segment(packet);
    case AttachType::kNotice: {
      const Result<NoticePacket> notice = packet.as<NoticePacket>();
      if (!notice.ok()) return notice.status();
      handle_notice(notice.value());
      return {};
    }
    case AttachType::kModeChange: {
      const Result<ModeChangePacket> change = packet.as<ModeChangePacket>();
      if (!change.ok()) return change.status();
      mode_changes_.push_back({get_text(change.value().group), get_text(change.value().mode)});
      return {};
    }
    case AttachType::kRegistered: return take_registered(packet);
    case AttachType::kAnswer: return take_answer(packet);
    case AttachType::kDeviceTrial: return take_trial(packet);
    default: return bad_packet("type " + std::to_string(packet.header.type) + " from the agent");
  }
}

Status Session::take_registered(Packet& packet) {
  const Result<RegisteredPacket> place = packet.as<RegisteredPacket>();
  if (!place.ok()) return place.status();
  const auto asked = asked_.extract(packet.header.request);
  if (asked.empty()) return {};
  --unsettled_;
  --registry_.unsettled;
  GRADBUS_RETURN_IF_ERROR(settle(*asked.mapped(), place.value(), std::move(packet.fds)));
  return remove_replaced(*asked.mapped());
}

Status Session::add_segment(Packet& packet) {
  const Result<SegmentPacket> info = packet.as<SegmentPacket>();
  if (!info.ok()) return info.status();
  if (packet.fds.size() != 1 || info.value().segment != arena_.size())
    return bad_packet("segment " + std::to_string(info.value().segment) + ", expected " +
                      std::to_string(arena_.size()));
  auto segment = Segment::open(std::move(packet.fds[0]), info.value().bytes);
  if (!segment.ok()) return segment.status();
  arena_.push_back(segment.take());
  make_private_in_children(arena_.back());
  return {};
}

int64_t Session::mode_changes_heard() {
  receive_all();
  const std::lock_guard lock(control_);
  return static_cast<int64_t>(mode_changes_.size());
}

std::optional<ModeChange> Session::take_mode_change(int64_t heard_by_all) {
  const std::lock_guard lock(control_);
  if (static_cast<int64_t>(mode_changes_taken_) >= heard_by_all) return {};
  return mode_changes_[mode_changes_taken_++];
}

void Session::handle_notice(const NoticePacket& notice) {
  notice_ = get_text(notice.text);
  if (notice.code != 0) fail(Status(static_cast<Code>(notice.code), notice_));
}

void Session::fail(const Status& status) {
  if (failed_.load()) return;
  failure_ = status;
  failed_.store(true);
}

Status Session::failure() {
  if (!failed_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(control_);
  return failure_;
}

Status Session::why_failed() {
  const Nanos deadline = monotonic_now() + kSecond;
  for (;;) {
    receive_all();
    Status known = failure();
    if (!known.ok()) return known;
    if (monotonic_now() >= deadline)
      return error("X001", "the operation failed and the agent gave no reason within 1 s");
    connection_->wait(10 * kMillisecond);
  }
}

}  // namespace gradbus
