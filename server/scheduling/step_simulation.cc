#include "server/scheduling/step_simulation.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace gradbus::scheduling {
namespace {

constexpr double kRounding = 1e-6;  // of a chunk

bool delivers(const Operation& operation) {
  return operation.kind != CollectiveKind::kReduceScatter;
}

}  // namespace

StepSimulation::StepSimulation(const Workload& workload, const Plan& plan, const Cluster& cluster)
    : workload_(workload),
      plan_(plan),
      cluster_(cluster),
      codes_on_compute_(cluster.codec.on_compute),
      undelivered_of_(workload.layers.size()),
      progress_(plan.operations.size()),
      reductions_of_(workload.layers.size()),
      followers_of_(plan.operations.size()),
      deliveries_of_(workload.layers.size()) {
  index_pieces();
}

void StepSimulation::index_pieces() {
  for (uint32_t i = 0; i < progress_.size(); ++i) {
    const Operation& operation = plan_.operations[i];
    progress_[i].times = operation_times(operation, cluster_);
    progress_[i].bytes = operation.bytes();
    if (operation.after >= 0) followers_of_[static_cast<size_t>(operation.after)].push_back(i);
    for (const Piece& piece : operation.pieces) {
      if (operation.start == Start::kGradients) reductions_of_[piece.layer].push_back(i);
      if (delivers(operation)) ++deliveries_of_[piece.layer];
    }
  }
}

double StepSimulation::run_to_next_step() {
  for (const uint32_t before = steps_; steps_ == before;) advance();
  return now_us_;
}

std::vector<Interval> StepSimulation::intervals() const {
  std::vector<Interval> all = intervals_;
  for (const Stream stream : {Stream::kCompute, Stream::kCodec, Stream::kLink}) {
    const Server& each = servers_[static_cast<size_t>(stream)];
    if (!each.idle()) all.push_back({stream, each.activity, each.index, each.begin_us, now_us_});
  }
  return all;
}

// To the next end, of all streams that end then; new work begins after all of them.
void StepSimulation::advance() {
  double next = kNever;
  for (const Server& each : servers_) next = std::min(next, each.end_us);
  if (next != kNever) now_us_ = next;
  for (const Stream stream : {Stream::kCompute, Stream::kCodec, Stream::kLink})
    if (server(stream).end_us <= now_us_) complete(finish(stream));
  dispatch_compute();
  dispatch_codec();
  dispatch_link();
  GRADBUS_CHECK(!server(Stream::kCompute).idle() || !server(Stream::kCodec).idle() ||
                !server(Stream::kLink).idle());
}

void StepSimulation::begin(Stream stream, Activity activity, uint32_t index, double duration_us) {
  server(stream) = {now_us_, now_us_ + duration_us, activity, index};
}

Interval StepSimulation::finish(Stream stream) {
  Server& ended = server(stream);
  const Interval done{stream, ended.activity, ended.index, ended.begin_us, now_us_};
  ended.end_us = kNever;
  intervals_.push_back(done);
  return done;
}

void StepSimulation::complete(const Interval& done) {
  switch (done.activity) {
    case Activity::kForward: return;
    case Activity::kBackward: return end_backward(done.index);
    case Activity::kEncode: return to_link(done.index);
    case Activity::kDecode: return deliver(done.index);
    case Activity::kExchange: return end_segment(done);
  }
}

// Encoding goes before the next layer, as kernels that a hook launches do. Decoding fills gaps.
void StepSimulation::dispatch_compute() {
  if (!server(Stream::kCompute).idle()) return;
  if (codes_on_compute_ && take_coding(Stream::kCompute, false)) return;
  if (may_compute()) return begin_layer();
  if (codes_on_compute_) take_coding(Stream::kCompute, true);
}

bool StepSimulation::may_compute() const {
  const size_t layers = workload_.layers.size();
  const size_t position = position_ % (2 * layers);
  if (position >= layers) return true;
  return plan_.steps_per_layer ? undelivered_of_[position] == 0 : position > 0 || undelivered_ == 0;
}

void StepSimulation::begin_layer() {
  const size_t layers = workload_.layers.size();
  position_ %= 2 * layers;
  if (position_ == 0) ++steps_;
  if (position_ == layers) begin_backward();
  const bool forward = position_ < layers;
  const uint32_t layer =
      forward ? static_cast<uint32_t>(position_) : workload_.backward_order[position_ - layers];
  const Layer& work = workload_.layers[layer];
  ++position_;
  begin(Stream::kCompute, forward ? Activity::kForward : Activity::kBackward, layer,
        forward ? work.forward_us : work.backward_us);
}

void StepSimulation::begin_backward() {
  backward_ended_ = false;
  for (Progress& progress : progress_) progress.gradients_missing = 0;
  for (const auto& operations : reductions_of_)
    for (const uint32_t operation : operations) ++progress_[operation].gradients_missing;
  undelivered_of_ = deliveries_of_;
  undelivered_ = 0;
  for (const uint32_t pieces : deliveries_of_) undelivered_ += pieces;
}

void StepSimulation::end_backward(uint32_t layer) {
  for (const uint32_t operation : reductions_of_[layer])
    if (--progress_[operation].gradients_missing == 0) release(operation);
  if (position_ < 2 * workload_.layers.size()) return;
  backward_ended_ = true;
  for (const uint32_t operation : deferred_) release(operation);
  deferred_.clear();
}

void StepSimulation::release(uint32_t operation) {
  progress_[operation].sent_us = 0;
  if (progress_[operation].times.encode_us > 0) {
    to_encode_.push_back(operation);
  } else {
    to_link(operation);
  }
}

void StepSimulation::to_link(uint32_t operation) {
  const int64_t priority = plan_.operations[operation].priority;
  waiting_.insert({priority, arrivals_++, operation});
  interrupt_for(priority);
}

void StepSimulation::after_link(uint32_t operation) {
  if (progress_[operation].times.decode_us > 0) {
    to_decode_.push_back(operation);
  } else {
    deliver(operation);
  }
}

void StepSimulation::deliver(uint32_t operation) {
  for (const uint32_t follower : followers_of_[operation]) {
    if (backward_ended_) {
      release(follower);
    } else {
      deferred_.push_back(follower);
    }
  }
  if (!delivers(plan_.operations[operation])) return;
  for (const Piece& piece : plan_.operations[operation].pieces) --undelivered_of_[piece.layer];
  undelivered_ -= static_cast<uint32_t>(plan_.operations[operation].pieces.size());
}

void StepSimulation::dispatch_codec() {
  if (!codes_on_compute_ && server(Stream::kCodec).idle()) take_coding(Stream::kCodec, true);
}

// What the link waits for goes first.
bool StepSimulation::take_coding(Stream stream, bool may_decode) {
  const bool encodes = !to_encode_.empty();
  if (!encodes && (!may_decode || to_decode_.empty())) return false;
  std::deque<uint32_t>& queue = encodes ? to_encode_ : to_decode_;
  const uint32_t operation = queue.front();
  queue.pop_front();
  const OperationTimes& times = progress_[operation].times;
  begin(stream, encodes ? Activity::kEncode : Activity::kDecode, operation,
        encodes ? times.encode_us : times.decode_us);
  return true;
}

void StepSimulation::dispatch_link() {
  commit();
  if (!server(Stream::kLink).idle() || committed_.empty()) return;
  sending_ = committed_.front();
  committed_.pop_front();
  interrupted_ = false;
  const Progress& progress = progress_[sending_.operation];
  begin(Stream::kLink, Activity::kExchange, sending_.operation,
        progress.times.exchange_us - progress.sent_us);
}

// Without a budget, an operation is chosen when the link is free.
void StepSimulation::commit() {
  while (!waiting_.empty()) {
    const uint64_t bytes = progress_[waiting_.begin()->operation].bytes;
    const bool first = committed_.empty() && server(Stream::kLink).idle();
    if (!first && in_flight_bytes_ + bytes > plan_.in_flight_bytes_max) return;
    in_flight_bytes_ += bytes;
    in_flight_bytes_max_ = std::max(in_flight_bytes_max_, in_flight_bytes_);
    committed_.push_back(*waiting_.begin());
    waiting_.erase(waiting_.begin());
  }
}

// Shortens what is being sent to the end of its current chunk.
void StepSimulation::interrupt_for(int64_t priority) {
  Server& link = server(Stream::kLink);
  if (plan_.chunk_bytes == 0 || link.idle() || priority >= sending_.priority) return;
  const Progress& progress = progress_[sending_.operation];
  const double chunks =
      std::ceil(static_cast<double>(progress.bytes) / static_cast<double>(plan_.chunk_bytes));
  const double chunk_us = progress.times.exchange_us / chunks;
  const double reached = progress.sent_us + (now_us_ - link.begin_us);
  const double boundary = std::ceil(reached / chunk_us - kRounding) * chunk_us;
  const double end_us = link.begin_us + (boundary - progress.sent_us);
  interrupted_ = interrupted_ || end_us < link.end_us;
  link.end_us = std::min(link.end_us, end_us);
}

// What was not interrupted is complete, whatever its times add up to: where `now_us_` is large, a
// short time adds nothing to it, and the rest would be sent for ever.
void StepSimulation::end_segment(const Interval& done) {
  Progress& progress = progress_[done.index];
  progress.sent_us += done.end_us - done.begin_us;
  in_flight_bytes_ -= progress.bytes;
  const double left_us = progress.times.exchange_us - progress.sent_us;
  if (interrupted_ && left_us > kRounding * progress.times.exchange_us) {
    waiting_.insert(sending_);
  } else {
    after_link(done.index);
  }
}

}  // namespace gradbus::scheduling
