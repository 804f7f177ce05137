#include "server/coordinator/attach_stream.h"

#include "common/guarded.h"
#include "common/log.h"

namespace gradbus {
namespace {

constexpr Nanos kPauseToldMin = kSecond;

}  // namespace

void AttachStream::begin(uint64_t id) {
  id_ = id;
  StartRead(&incoming_);
}

void AttachStream::OnReadDone(bool ok) {
  if (!ok) return desk_->reading_ended(this, id_);
  desk_->act(
      [this](Coordinator& coordinator, Nanos now) { coordinator.receive(id_, incoming_, now); });
  StartRead(&incoming_);
}

void AttachStream::OnWriteDone(bool ok) { desk_->written(this, ok); }

void AttachStream::OnDone() {
  desk_->remove(id_);
  delete this;
}

void AttachStream::enqueue(const Outgoing& outgoing) {
  if (closing_) return;
  if (outgoing.message != nullptr) {
    queued_bytes_ += outgoing.message->ByteSizeLong();
    queue_.push_back(outgoing.message);
  }
  closing_ = outgoing.close;
  if (queued_bytes_ <= desk_->queue_bytes_max()) return;
  spdlog::warn("agent stream {} does not read: {} bytes wait; ended", id_, queued_bytes_);
  context_->TryCancel();
  close();
}

void AttachStream::written(bool ok) {
  busy_ = false;
  queued_bytes_ -= queue_.front()->ByteSizeLong();
  queue_.pop_front();
  if (!ok) close();
}

void AttachStream::close() {
  closing_ = true;
  queue_.resize(busy_ && !queue_.empty() ? 1 : 0);
}

AttachStream::Step AttachStream::next_step() {
  if (busy_ || (queue_.empty() && !closing_)) return {};
  busy_ = true;
  if (queue_.empty()) return {Step::Kind::kFinish, nullptr};
  return {Step::Kind::kWrite, queue_.front().get()};
}

void AttachStream::take(Step step) {
  if (step.kind == Step::Kind::kWrite) StartWrite(step.message);
  if (step.kind == Step::Kind::kFinish) Finish(grpc::Status::OK);
}

Desk::Desk(const CoordinatorOptions& options, size_t queue_bytes_max)
    : queue_bytes_max_(queue_bytes_max),
      clock_(monotonic_now()),
      coordinator_(options, clock_.turn(monotonic_now())) {}

Nanos Desk::turn() {
  const Nanos now = clock_.turn(monotonic_now());
  if (clock_.last_pause() > kPauseToldMin)
    spdlog::warn(
        "the coordinator was suspended for {} ms; leases and deadlines are extended by that time",
        clock_.last_pause() / kMillisecond);
  return now;
}

void Desk::set_deaf(bool deaf) {
  const std::lock_guard lock(mutex_);
  clock_.set_deaf(deaf);
  if (deaf) coordinator_.renew_leases(turn());
}

void Desk::run(const Kicks& kicks) {
  for (const auto& [stream, step] : kicks) stream->take(step);
}

void Desk::act(const std::function<void(Coordinator&, Nanos now)>& event) {
  Kicks kicks;
  {
    const std::lock_guard lock(mutex_);
    const Status done = guarded([&] { event(coordinator_, turn()); });
    if (!done.ok()) spdlog::error("a message could not be handled: {}", done.message());
    deliver(kicks);
  }
  run(kicks);
}

void Desk::deliver(Kicks& kicks) {
  for (const std::string& line : coordinator_.take_notes()) spdlog::info("{}", line);
  for (Question& question : coordinator_.take_questions())
    if (question_sink_) question_sink_(std::move(question));
  for (const Outgoing& outgoing : coordinator_.take_outgoing()) {
    const auto at = streams_.find(outgoing.agent);
    if (at == streams_.end()) continue;
    at->second->enqueue(outgoing);
    kick(at->second, kicks);
  }
}

void Desk::kick(AttachStream* stream, Kicks& kicks) {
  const AttachStream::Step step = stream->next_step();
  if (step.kind != AttachStream::Step::Kind::kNothing) kicks.emplace_back(stream, step);
}

void Desk::add(AttachStream* stream) {
  act([this, stream](Coordinator& coordinator, Nanos now) {
    const uint64_t id = next_id_++;
    streams_[id] = stream;
    stream->begin(id);
    coordinator.connect(id, now);
  });
}

void Desk::remove(uint64_t id) {
  const std::lock_guard lock(mutex_);
  streams_.erase(id);
}

void Desk::written(AttachStream* stream, bool ok) {
  Kicks kicks;
  {
    const std::lock_guard lock(mutex_);
    stream->written(ok);
    kick(stream, kicks);
  }
  run(kicks);
}

void Desk::reading_ended(AttachStream* stream, uint64_t id) {
  Kicks kicks;
  {
    const std::lock_guard lock(mutex_);
    const Status done = guarded([&] { coordinator_.disconnect(id, turn()); });
    if (!done.ok()) spdlog::error("the end of stream {}: {}", id, done.message());
    stream->close();
    deliver(kicks);
    kick(stream, kicks);
  }
  run(kicks);
}

}  // namespace gradbus
