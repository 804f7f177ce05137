#include "client_lib/src/session.h"

#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "client_lib/src/launch_traces.h"
#include "client_lib/src/operation.h"
#include "common/errors.h"
#include "common/policy/codec_choice.h"
#include "common/policy/sync_mode.h"
#include "proto/tensor_ids.h"

namespace gradbus {
namespace {

constexpr Nanos kBlockedReportEvery = kSecond;
// A dead agent is noticed on its socket between two sleeps, so this bounds how late.
constexpr Nanos kSleepSlice = 50 * kMillisecond;
constexpr Nanos kSleepSliceWhileRegistering = 2 * kMillisecond;
constexpr Nanos kSleepSliceBesideStreams = kMillisecond;

ChannelHeader& channel_header(const Segment& channel) {
  return *reinterpret_cast<ChannelHeader*>(channel.at(0));
}

std::string seconds(Nanos nanos) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", static_cast<double>(nanos) / kSecond);
  return text;
}

Status check_channel(const Segment& channel) {
  const ChannelHeader& header = channel_header(channel);
  if (channel.bytes() < kChannelBytes || header.magic != kChannelMagic)
    return error("S212", "the channel segment does not begin with GBCHAN1");
  if (header.version != kShmLayoutVersion || header.ring_records != kRingRecords)
    return error("V801", "the channel's layout version is " + std::to_string(header.version) +
                             ", this library's is " + std::to_string(kShmLayoutVersion));
  return {};
}

}  // namespace

// ---- opening and closing

Session::Session(LaunchIdentity identity, SessionOptions options)
    : identity_(std::move(identity)), options_(std::move(options)) {}

Result<std::unique_ptr<Session>> Session::open(const SessionOptions& options) {
  Result<LaunchIdentity> identity = find_identity(options.identity, read_environment);
  if (!identity.ok() || identity.value().rank == 0) warn_of_unknown_variables();
  if (!identity.ok()) return identity.status();
  warn_if_alone(identity.value());
  SessionOptions chosen = options;
  if (chosen.socket_path.empty()) chosen.socket_path = default_socket_path(read_environment);
  std::unique_ptr<Session> session(new Session(identity.take(), std::move(chosen)));
  const LaunchIdentity& who = session->identity_;
  if (who.launcher == "single") {
    GRADBUS_RETURN_IF_ERROR(session->be_alone());
    return session;
  }
  Result<AgentConnection> connection = AgentConnection::open(session->options_.socket_path);
  if (connection.ok()) {
    GRADBUS_RETURN_IF_ERROR(session->attach(connection.take()));
    return session;
  }
  if (who.world_size > 1)
    return connection.status().with_context("rank " + std::to_string(who.rank) + " of job \"" +
                                            who.job + "\"");
  GRADBUS_RETURN_IF_ERROR(session->be_alone());
  return session;
}

Result<std::unique_ptr<Session>> Session::open_set(LaunchIdentity identity) const {
  std::unique_ptr<Session> session(new Session(std::move(identity), options_));
  if (session->identity_.world_size == 1) {
    GRADBUS_RETURN_IF_ERROR(session->be_alone());
    return session;
  }
  Result<AgentConnection> connection = AgentConnection::open(options_.socket_path);
  if (!connection.ok()) return connection.status();
  GRADBUS_RETURN_IF_ERROR(session->attach(connection.take()));
  return session;
}

Status Session::be_alone() {
  joined_.world_size = joined_.local_size = joined_.agents = joined_.cores = 1;
  if (getrandom(joined_.secret, sizeof(joined_.secret), 0) != sizeof(joined_.secret))
    return error("X001", "the kernel did not provide random bytes");
  return {};
}

Status Session::attach(AgentConnection connection) {
  Result<Attachment> attachment = connection.join(identity_, options_.start_timeout);
  if (!attachment.ok()) return attachment.status();
  joined_ = attachment.value().joined;
  channel_ = attachment.value().channel;
  GRADBUS_RETURN_IF_ERROR(check_channel(*channel_));
  trace_.attach(channel_->at(0));
  arena_.push_back(attachment.value().arena);
  make_private_in_children(channel_);
  make_private_in_children(arena_.back());
  doorbell_ = std::move(attachment.value().doorbell);
  submissions_ = RingProducer<Submission>(RingMemory::at(channel_->at(kSubmissionRingOffset)));
  completions_ =
      RingConsumer<CompletionRecord>(RingMemory::at(channel_->at(kCompletionRingOffset)));
  connection_ = std::move(connection);
  registry_.add(this);
  return {};
}

Session::~Session() {
  registry_.remove(this);
  registry_.unsettled.fetch_sub(unsettled_.load());
  registry_.streams.fetch_sub(streams_.load());
  if (!connection_) return;
  const auto packet = make_packet<LeavePacket>();
  (void)connection_->send(&packet, sizeof(packet));
}

// ---- registration

// What `asked` says wins; else the job's policy, for what can be a gradient. A choice of codecs is
// left to those who measure steps, so other tensors are dense.
std::string Session::compression_for(const TensorSpec& spec, const char* asked) const {
  if (asked != nullptr) return std::string_view(asked) == "none" ? "" : asked;
  const bool sums = spec.kind == CollectiveKind::kAllReduce && spec.dtype == DType::kF32 &&
                    (spec.op == ReduceOp::kSum || spec.op == ReduceOp::kAverage);
  const uint32_t dims = spec.columns == 0 ? 0 : 2;
  const std::string_view found =
      sums ? options_.compressions.find(spec.name, spec.count, dims) : std::string_view();
  return found == "none" || found.empty() || is_codec_choice(found) ? "" : std::string(found);
}

Status Session::ask(const std::shared_ptr<Registration>& registration) {
  const TensorSpec& spec = registration->spec;
  auto packet = make_packet<RegisterPacket>(next_request_++);
  set_text(packet.name, spec.name);
  packet.count = spec.count;
  packet.dtype = static_cast<uint8_t>(spec.dtype);
  packet.op = static_cast<uint8_t>(spec.op);
  packet.collective = static_cast<uint8_t>(spec.kind);
  packet.root = spec.root;
  packet.row_elements = spec.row_elements;
  packet.prescale = spec.prescale;
  packet.postscale = spec.postscale;
  packet.columns = spec.columns;
  set_text(packet.compression, spec.compression);
  set_text(packet.mode, spec.mode);
  set_text(packet.shape, spec.shape);
  packet.priority = spec.priority;
  packet.result_priority = spec.result_priority;
  packet.wants_device = registration->device.has_value() ? 1 : 0;
  packet.device = registration->device.value_or(DeviceId{});
  GRADBUS_RETURN_IF_ERROR(connection_->send(&packet, sizeof(packet)));
  asked_[packet.header.request] = registration;
  ++unsettled_;
  ++registry_.unsettled;
  return {};
}

Status Session::settle_alone(Registration& registration) {
  if (const auto mode = parse_mode(registration.spec.mode);
      mode.ok() && mode.value().holds_parameters())
    return error("O912", "tensor \"" + registration.spec.name + "\" has mode " +
                             registration.spec.mode + ", and this process is alone");
  const size_t local_reduction = local_reduction_bytes(1, 1);
  auto segment = Segment::anonymous(local_reduction + registration.spec.bytes() + kDataAlignBytes);
  if (!segment.ok()) return segment.status();
  const auto unused = std::ranges::find(arena_, nullptr);
  RegisteredPacket place;
  place.tensor = static_cast<uint32_t>(tensor_by_id_.size());
  place.segment = static_cast<uint32_t>(unused - arena_.begin());
  unused == arena_.end() ? arena_.push_back(segment.take()) : void(*unused = segment.take());
  place.chunks = 1;
  place.chunk_elements = std::max<uint64_t>(registration.spec.count, 1);
  place.data_offset = local_reduction;
  return settle(registration, place);
}

LocalReduction Session::make_local_reduction(const TensorSpec& spec, const Segment& segment,
                                             const RegisteredPacket& place) const {
  LocalReductionShape shape = make_local_reduction_shape(
      spec, place.chunk_elements,
      {joined_.world_size, joined_.local_size, connection_ && spec.leaves_node(joined_.agents),
       place.on_device != 0});
  shape.data_stride = place.data_stride;
  return LocalReduction(segment.at(place.local_reduction_offset), segment.at(place.data_offset),
                        shape);
}

Status Session::settle(Registration& registration, const RegisteredPacket& place,
                       std::vector<Fd> fds) {
  if (place.code != 0) {
    registration.failure = Status(static_cast<Code>(place.code), get_text(place.text));
    registration.done.store(true, std::memory_order_release);
    return {};
  }
  if (place.segment >= arena_.size() || place.chunk_elements == 0 || place.tensor >= kTensorIdsMax)
    return bad_packet("tensor \"" + registration.spec.name + "\" lies in segment " +
                      std::to_string(place.segment) + " of " + std::to_string(arena_.size()));
  const LocalReduction local_reduction =
      make_local_reduction(registration.spec, *arena_[place.segment], place);
  const std::lock_guard lock(completion_lock_);
  if (tensor_by_id_.size() <= place.tensor) tensor_by_id_.resize(place.tensor + 1);
  Tensor*& tensor = tensor_by_id_[place.tensor];
  // Known already when its name was asked for with other arguments in between, and refused.
  if (tensor == nullptr || tensor->spec() != registration.spec) {
    tensors_.push_back(
        std::make_unique<Tensor>(*this, registration.spec, place.tensor, local_reduction));
    tensor = tensors_.back().get();
    if (place.on_device != 0) {
      auto memory = take_device_memory(place.rank_buffer.memory, fds);
      if (!memory.ok()) return memory.status();
      tensor->put_on_device({memory.take(), place.rank_buffer.ready, place.rank_buffer.done});
    }
    if (place.on_device == 0) tensor->say_why_not_on_device(get_text(place.text));
  }
  registration.tensor = tensor;
  registration.done.store(true, std::memory_order_release);
  return {};
}

Status Session::wait_registered(const Registration& registration, Nanos timeout, WaitClock& clock) {
  const Nanos started = monotonic_now();
  clock.begin(started, advances_.load(std::memory_order_relaxed));
  const WaitSubject subject{registration.spec.name, 0, clock};
  for (;;) {
    progress();
    if (registration.settled()) return registration.failure;
    GRADBUS_RETURN_IF_ERROR(failure());
    const Nanos now = monotonic_now();
    if (now - started > timeout) return timed_out(subject, now - clock.began, nullptr);
    report_when_due(subject, now);
    connection_->wait(socket_slice());
  }
}

// ---- hot path

void Session::count_operation(uint64_t bytes) {
  if (!connection_) return;
  ChannelHeader& header = channel_header(*channel_);
  header.operations.fetch_add(1, std::memory_order_relaxed);
  header.bytes.fetch_add(bytes, std::memory_order_relaxed);
}

Status Session::submit(Tensor& tensor, Submission record) {
  if (!connection_) return {};
  count_operation(tensor.spec().bytes());
  ChannelHeader& header = channel_header(*channel_);
  if (tensor.round() > header.step.load(std::memory_order_relaxed))
    header.step.store(tensor.round(), std::memory_order_relaxed);
  // On one node the ranks do the work themselves; with cores to spare the agent is asked to help
  // while this thread computes on.
  const bool remote = tensor.local_reduction().shape().remote;
  const bool assist = joined_.cores > joined_.local_size &&
                      tensor.local_reduction().shape().chunks > 1 &&
                      tensor.spec().kind == CollectiveKind::kAllReduce;
  if (!remote && !assist) return {};
  record.tensor = tensor.id();
  record.round = tensor.round();
  {
    const std::lock_guard lock(submission_lock_);
    Push pushed = overflow_.empty() ? submissions_.push(record) : Push::kFull;
    if (pushed == Push::kCorrupt) return error("S210", "field head of the submission ring");
    if (pushed == Push::kFull && remote) overflow_.push_back(record);  // else: help is optional
  }
  ring_doorbell();
  return {};
}

void Session::flush_submissions() {
  {
    const std::lock_guard lock(submission_lock_);
    if (overflow_.empty()) return;
    size_t pushed = 0;
    while (pushed < overflow_.size() && submissions_.push(overflow_[pushed]) == Push::kDone)
      ++pushed;
    overflow_.erase(overflow_.begin(), overflow_.begin() + static_cast<ptrdiff_t>(pushed));
  }
  ring_doorbell();
}

void Session::ring_doorbell() {
  std::atomic<uint32_t>& sleeping = channel_header(*channel_).agent_sleeping;
  // The read-modify-write orders the push before this look at `sleeping`.
  if (sleeping.fetch_and(0, std::memory_order_seq_cst) != 0) eventfd_write(doorbell_.get(), 1);
}

void Session::drain_completions() {
  const std::lock_guard lock(completion_lock_);
  CompletionRecord record;
  while (completions_.pop(record) == Pop::kRecord)
    if (record.tensor < tensor_by_id_.size() && tensor_by_id_[record.tensor] != nullptr)
      tensor_by_id_[record.tensor]->complete(record.round, static_cast<Code>(record.code),
                                             record.staleness);
}

// ---- waiting

Nanos Session::sleep_slice(const WaitSubject& subject) const {
  if (registry_.streams.load(std::memory_order_relaxed) > (subject.stream ? 1 : 0))
    return kSleepSliceBesideStreams;
  return registry_.unsettled.load(std::memory_order_relaxed) > 0 ? kSleepSliceWhileRegistering
                                                                 : kSleepSlice;
}

// This session's own answers end the sleep, those of others do not.
Nanos Session::socket_slice() const {
  if (registry_.streams.load(std::memory_order_relaxed) > 0) return kSleepSliceBesideStreams;
  const bool others = registry_.unsettled.load(std::memory_order_relaxed) > unsettled_.load();
  return others ? kSleepSliceWhileRegistering : kSleepSlice;
}

Status Session::between_sleeps(const LocalReduction& local_reduction, const WaitSubject& subject,
                               Nanos started, Nanos timeout) {
  progress();
  const Nanos now = monotonic_now();
  report_when_due(subject, now);
  GRADBUS_RETURN_IF_ERROR(failure());
  if (now - started >= timeout)
    return timed_out(subject, now - subject.clock.began, &local_reduction);
  return {};
}

void Session::report_when_due(const WaitSubject& subject, Nanos now) {
  subject.clock.look(now, advances_.load(std::memory_order_relaxed));
  if (now - subject.clock.reported < kBlockedReportEvery) return;
  subject.clock.reported = now;
  report_blocked(subject, now - subject.clock.advanced, now);
}

// The coordinator needs a report every second to prove that no wait can end.
void Session::report_blocked(const WaitSubject& subject, Nanos waited, Nanos now) {
  const std::lock_guard lock(control_);
  if (!connection_) return;
  if (const Status silent = look_at_agent(now); !silent.ok()) return fail(silent);
  auto packet = make_packet<BlockedPacket>();
  set_text(packet.name, subject.name);
  packet.round = subject.round;
  packet.waited_ms = static_cast<uint64_t>(waited / kMillisecond);
  (void)connection_->send(&packet, sizeof(packet));
}

// A frozen agent keeps its socket open. Its silence is what it left unread from one look to the
// next; a long pause between two looks may be this process's own, so it counts as two reports at
// most.
Status Session::look_at_agent(Nanos now) {
  if (!connection_->has_unread()) {
    agent_looked_at_ = 0;
    agent_silent_ = 0;
    return {};
  }
  if (agent_looked_at_ != 0)
    agent_silent_ += std::min(now - agent_looked_at_, 2 * kBlockedReportEvery);
  agent_looked_at_ = now;
  if (agent_silent_ < options_.agent_timeout) return {};
  return error("A301", "the agent of this node has not read its socket for " +
                           seconds(agent_silent_) + ": it is stopped or overloaded");
}

Status Session::timed_out(const WaitSubject& subject, Nanos waited,
                          const LocalReduction* local_reduction) {
  std::string what = "rank " + std::to_string(rank()) + " waited " + seconds(waited) + " for \"" +
                     subject.name + "\"";
  what += subject.round == 0 ? " to be registered by all ranks"
                             : " round " + std::to_string(subject.round);
  for (uint32_t local = 0;
       local_reduction != nullptr && local < local_reduction->shape().local_size; ++local)
    if (!local_reduction->posted(local, subject.round))
      what += "; local rank " + std::to_string(local) + " has not started it";
  const std::lock_guard lock(control_);
  if (!notice_.empty()) what += "; " + notice_;
  return error("P110", what);
}

uint64_t Session::waited_ns() const {
  return channel_ ? channel_header(*channel_).wait_ns.load(std::memory_order_relaxed) : 0;
}

void Session::count_wait(Nanos since) {
  if (!channel_) return;
  const Nanos now = monotonic_now();
  channel_header(*channel_).wait_ns.fetch_add(static_cast<uint64_t>(now - since),
                                              std::memory_order_relaxed);
  channel_header(*channel_).last_call_ns.store(static_cast<uint64_t>(now),
                                               std::memory_order_relaxed);
}

// Threads of one process may report at once.
void Session::count_loss(double loss) {
  if (!channel_) return;
  ChannelHeader& header = channel_header(*channel_);
  if (!std::isfinite(loss)) {
    header.losses_not_finite.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  header.loss_sum.fetch_add(loss, std::memory_order_relaxed);
  header.losses.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace gradbus
