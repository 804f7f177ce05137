// One rank of one job, attached: its segments, its tensors, and how it waits.
//
// The hot path (Tensor::start and wait) takes no lock on one node; between nodes it takes one for
// each ring, for a few instructions. Everything else is under `control_`.
#pragma once

#include <sched.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "client_lib/src/agent_connection.h"
#include "client_lib/src/forks.h"
#include "client_lib/src/launch_env.h"
#include "client_lib/src/session_registry.h"
#include "client_lib/src/tensor.h"
#include "client_lib/src/trace_writer.h"
#include "common/policy/tensor_rules.h"
#include "common/segment.h"
#include "proto/shm_layout.h"
#include "shared_memory/ring.h"

namespace gradbus {

// Dead processes are detected separately, so this limit only ends real deadlocks. Gloo has the
// same.
inline constexpr Nanos kOpTimeoutDefault = 1800 * kSecond;
// Longer than an agent needs for its slowest work, to allocate large tensors.
inline constexpr Nanos kAgentTimeoutDefault = 60 * kSecond;

struct SessionOptions {
  std::string socket_path;  // "": the default
  LaunchArguments identity;
  Nanos start_timeout = 60 * kSecond;
  Nanos op_timeout = kOpTimeoutDefault;
  // A waiting rank fails when its agent has not read its socket for this time.
  Nanos agent_timeout = kAgentTimeoutDefault;
  // The policy for tensors without their own compression or mode.
  TensorRules compressions;
  TensorRules modes;
};

// A registration of a name: requested, complete or refused.
struct Registration {
  Registration(TensorSpec asked, std::optional<DeviceId> on) : spec(std::move(asked)), device(on) {}

  const TensorSpec spec;
  const std::optional<DeviceId> device;  // where to place this rank's elements; none: host memory
  // Written before `done` is stored, by the thread that reads the agent's answer; then constant.
  Tensor* tensor = nullptr;
  Status failure;
  bool settled() const { return done.load(std::memory_order_acquire); }
  std::atomic<bool> done{false};
  // Whether this registration has these arguments and was not refused.
  bool serves(const TensorSpec& asked, std::optional<DeviceId> on) const {
    return spec == asked && device == on && !(settled() && !failure.ok());
  }

  // Ad-hoc operations use the tensor one after the other, in the order in which they were started:
  // `taken` hands out numbers, `turn` is the number whose turn it is.
  std::atomic<uint64_t> taken{0};
  std::atomic<uint64_t> turn{0};
  // Under the session's lock: a caller has the tensor itself, and will unregister it.
  bool held = false;
  // Only ad-hoc operations use it, and none is in flight.
  bool idle() const { return settled() && !held && turn.load() == taken.load(); }
};

// A trial of GPU memory: one piece for each way in which the agent can share it, and an event.
struct DeviceTrialOffer {
  std::vector<SharedDeviceMemory> memory;
  DeviceShare event;
  std::atomic<bool> done{false};  // stored after the other members
};

// To a question of this rank.
struct CoordinatorAnswer {
  uint32_t request = 0;
  Status refused;
  std::string text;
  std::atomic<bool> done{false};  // stored after the other members
};

// The mode for all parameters that match a glob.
struct ModeChange {
  std::string group;
  std::string mode;  // canonical
};

// For messages while waiting.
struct WaitSubject {
  const std::string& name;
  uint64_t round;  // 0: the registration
  WaitClock& clock;
  bool stream = false;
  uint32_t tensor = 0;  // id, for a trace; 0: the name is shown
};

class Operation;

class Session {
 public:
  static Result<std::unique_ptr<Session>> open(const SessionOptions& options);
  // Opens a separate job for some ranks of this job, through the same agent. A world of one needs
  // no agent.
  Result<std::unique_ptr<Session>> open_set(LaunchIdentity identity) const;
  ~Session();

  // False in a child that was forked from the process that opened the session.
  bool is_of_this_process() const { return fork_depth() == fork_depth_; }
  const LaunchIdentity& identity() const { return identity_; }
  uint32_t rank() const { return joined_.rank; }
  uint32_t world_size() const { return joined_.world_size; }
  uint32_t local_rank() const { return joined_.local_rank; }
  uint32_t local_size() const { return joined_.local_size; }
  uint32_t agents() const { return joined_.agents; }
  uint32_t agent_index() const { return joined_.agent_index; }
  const uint8_t (&secret() const)[kJobSecretBytes] { return joined_.secret; }
  uint8_t worker() const { return static_cast<uint8_t>(joined_.local_rank); }
  // The segment with a tensor's elements, which stay mapped while the pointer exists.
  std::shared_ptr<Segment> memory_of(Tensor& tensor);
  Nanos op_timeout() const { return options_.op_timeout; }

  // The compression that a tensor is registered with. `asked` may be null: the policy decides.
  std::string compression_for(const TensorSpec& spec, const char* asked) const;
  const TensorRules& compressions() const { return options_.compressions; }
  const TensorRules& modes() const { return options_.modes; }
  // ---- changes of modes by administrators: all ranks receive the same ones in the same order, but
  // not at the same time
  int64_t mode_changes_heard();
  // The next change of the first `heard_by_all`; none if all of them were taken.
  std::optional<ModeChange> take_mode_change(int64_t heard_by_all);

  // ---- registration (any thread)
  // Requests `spec`, or finds an earlier request for it. Never blocks; progress() completes it.
  // `device`: the GPU for this rank's elements (Tensor::device_rank_buffer).
  Result<std::shared_ptr<Registration>> request(const TensorSpec& spec,
                                                std::optional<DeviceId> device = {});
  // The same, and a number for the caller's turn at the tensor, which keeps it registered.
  Result<std::shared_ptr<Registration>> request_turn(const TensorSpec& spec, uint64_t& turn);
  // ---- the end of tensors (session_tensors.cc)
  // Ends this rank's use of the tensors. They are deleted here, and their memory is free once all
  // ranks have done the same. Never blocks. O905 while a round of one is in flight; then none is
  // unregistered.
  Status unregister(std::span<Tensor* const> tensors);
  // The same while views of their memory exist: the memory stays until unregister() is called. The
  // names are free at once.
  Status unregister_but_views(std::span<Tensor* const> tensors);
  // Unregisters the tensors of ad-hoc operations of this name, and returns their number. O905 while
  // one is in use.
  Result<size_t> unregister(const std::string& name);
  Status wait_registered(const Registration& registration, Nanos timeout, WaitClock& clock);

  // ---- questions to the coordinator (session_questions.cc)
  // Blocks until the answer has come. One at a time for a job. GB-O905 while another one waits.
  Result<std::string> ask_coordinator(std::string_view question);

  // ---- GPUs (device_trials.cc)
  // Waits for the agent's offer, which is empty if it cannot share memory of this GPU.
  Result<std::shared_ptr<DeviceTrialOffer>> try_device(const DeviceId& device);
  // One reason for each memory of the offer; "": it could be opened.
  Status device_tried(const DeviceId& device, const DeviceTrialOffer& offer,
                      const std::vector<std::string>& why_not);

  // ---- hot path
  // Pushes the record to the agent's ring, with `tensor` and `round` filled in.
  Status submit(Tensor& tensor, Submission record);
  void count_operation(uint64_t bytes);  // for `gradbus status`
  void count_loss(double loss);          // ... and the coordinator's rule
  // Pushes the records that found the submission ring full.
  void flush_submissions();
  void ring_doorbell();
  void drain_completions();

  // ---- waiting
  // Calls `attempt` until it returns true. Between the calls it spins for a short time if cores are
  // free, yields for a short time if they are not, and then sleeps on the local reduction. Fails
  // with P110 after `timeout`, or with the job's error.
  template <typename Attempt>
  Status wait_until(LocalReduction& local_reduction, Attempt attempt, const WaitSubject& subject,
                    Nanos timeout);
  // What this rank does, while the job is traced.
  TraceWriter& trace() { return trace_; }
  // The time for which threads of this rank have slept until others had done their part.
  uint64_t waited_ns() const;
  // Reads the agent's packets and advances the operations that wait for them: for all sessions of
  // this process, and for this one alone.
  void progress();
  void progress_alone();
  // An operation has advanced, so current waits are not stalls.
  void note_progress() { advances_.fetch_add(1, std::memory_order_relaxed); }
  void advance_operations();
  // Ok while the job runs.
  Status failure();
  // The job's error after a local reduction failed. Waits briefly for the agent's message.
  Status why_failed();

  // ---- ad-hoc operations that wait for their registration
  // Keeps the operation, also after the user freed its handle. progress() advances it until it
  // ends.
  void add_pending(std::shared_ptr<Operation> operation);
  // Streams make progress only inside the library, so threads that wait for something else advance
  // them too, and sleep where the stream's next chunk wakes them.
  void begin_stream(LocalReduction& local_reduction) {
    count_stream(1);
    stream_local_reduction_.store(&local_reduction, std::memory_order_release);
  }
  void end_stream(LocalReduction& local_reduction) {
    LocalReduction* ended = &local_reduction;
    stream_local_reduction_.compare_exchange_strong(ended, nullptr);
    count_stream(-1);
  }
  // The number of the next unnamed operation with this `signature`. Ranks that start them in the
  // same order get the same numbers.
  uint64_t next_unnamed(const std::string& signature);
  // Numbers the process sets of this session, from 0.
  uint64_t next_set() { return sets_.fetch_add(1); }

 private:
  Session(LaunchIdentity identity, SessionOptions options);
  Status attach(AgentConnection connection);
  Status be_alone();

  Result<std::shared_ptr<Registration>> request_locked(const TensorSpec& spec,
                                                       std::optional<DeviceId> device);
  std::shared_ptr<Segment>* find_memory(Tensor& tensor);
  Status check_rest(std::span<Tensor* const> tensors) const;
  Status send_unregister(Tensor& tensor, bool viewed);
  Status remove(Tensor& tensor);
  Status remove_replaced(const Registration& by);
  Status ask(const std::shared_ptr<Registration>& registration);
  Status settle_alone(Registration& registration);
  Status settle(Registration& registration, const RegisteredPacket& packet,
                std::vector<Fd> fds = {});
  LocalReduction make_local_reduction(const TensorSpec& spec, const Segment& segment,
                                      const RegisteredPacket& place) const;
  void receive_all();
  Status handle(Packet& packet);
  Status add_segment(Packet& packet);
  Status take_registered(Packet& packet);
  Status take_trial(Packet& packet);
  Status take_answer(Packet& packet);
  Status wait_for_answer(const CoordinatorAnswer& answer);
  void handle_notice(const NoticePacket& notice);
  void fail(const Status& status);

  template <typename Attempt>
  Status keep_waiting(LocalReduction& local_reduction, Attempt& attempt, const WaitSubject& subject,
                      Nanos started, Nanos timeout);
  void trace_wait(const WaitSubject& subject, Nanos started) {
    const Nanos now = monotonic_now();
    subject.tensor != 0 ? trace_.add(TraceKind::kWait, subject.tensor, subject.round, started, now)
                        : trace_.add(TraceKind::kWait, subject.name, started, now);
  }
  bool may_spin() const { return joined_.local_size <= joined_.cores && joined_.agents == 1; }
  bool may_yield() const { return joined_.local_size > joined_.cores && joined_.agents == 1; }
  // The checks between two sleeps: packets, blocked report, deadline.
  Status between_sleeps(const LocalReduction& local_reduction, const WaitSubject& subject,
                        Nanos started, Nanos timeout);
  void report_when_due(const WaitSubject& subject, Nanos now);
  void report_blocked(const WaitSubject& subject, Nanos waited, Nanos now);
  Status look_at_agent(Nanos now);
  Status timed_out(const WaitSubject& subject, Nanos waited, const LocalReduction* local_reduction);
  Nanos sleep_slice(const WaitSubject& subject) const;
  // The local reduction to sleep on: that of a stream that needs this thread, else
  // `local_reduction`.
  LocalReduction& local_reduction_to_watch(LocalReduction& local_reduction,
                                           const WaitSubject& subject) const {
    LocalReduction* const stream =
        subject.stream ? nullptr : stream_local_reduction_.load(std::memory_order_acquire);
    return stream == nullptr ? local_reduction : *stream;
  }
  bool advance_streams();  // true: one has moved
  void count_stream(int change) {
    streams_.fetch_add(change, std::memory_order_relaxed);
    registry_.streams.fetch_add(change, std::memory_order_relaxed);
  }
  Nanos socket_slice() const;
  void count_wait(Nanos since);
  struct CountedWait {
    Session& session;
    Nanos since;
    ~CountedWait() { session.count_wait(since); }
  };

  const LaunchIdentity identity_;
  const SessionOptions options_;
  const uint64_t fork_depth_ = fork_depth();
  SessionRegistry& registry_ = SessionRegistry::of_this_process();
  JoinedPacket joined_;

  std::mutex control_;
  std::optional<AgentConnection> connection_;  // none: a world of one
  std::shared_ptr<Segment> channel_;
  std::vector<std::shared_ptr<Segment>> arena_;
  TraceWriter trace_;
  Fd doorbell_;
  std::map<std::string, std::shared_ptr<Registration>> registrations_;
  // Registrations of ad-hoc operations whose names were used again with other arguments.
  std::vector<std::shared_ptr<Registration>> replaced_;
  std::map<uint32_t, std::shared_ptr<Registration>> asked_;       // by request number
  std::map<uint32_t, std::shared_ptr<DeviceTrialOffer>> trials_;  // as above
  std::shared_ptr<CoordinatorAnswer> answer_;                     // to the question that waits
  std::vector<std::unique_ptr<Tensor>> tensors_;                  // owned; by age
  std::vector<Tensor*> tensor_by_id_;
  std::map<std::string, uint64_t> unnamed_;
  uint32_t next_request_ = 2;
  Nanos agent_looked_at_ = 0;  // 0: it had read everything
  Nanos agent_silent_ = 0;
  std::string notice_;
  std::vector<ModeChange> mode_changes_;
  size_t mode_changes_taken_ = 0;
  Status failure_;
  std::atomic<bool> failed_{false};
  std::atomic<uint64_t> sets_{0};

  std::mutex operations_lock_;
  std::vector<std::shared_ptr<Operation>> pending_;
  std::atomic<uint32_t> unsettled_{0};
  std::atomic<int> streams_{0};
  std::atomic<LocalReduction*> stream_local_reduction_{nullptr};  // of one of them
  std::atomic<uint64_t> advances_{0};

  std::mutex submission_lock_;
  std::vector<Submission> overflow_;  // in order: the ring was full
  RingProducer<Submission> submissions_;
  std::mutex completion_lock_;
  RingConsumer<CompletionRecord> completions_;
};

inline void relax_cpu() { __builtin_ia32_pause(); }

template <typename Attempt>
Status Session::wait_until(LocalReduction& local_reduction, Attempt attempt,
                           const WaitSubject& subject, Nanos timeout) {
  if (attempt()) return {};
  const Nanos started = monotonic_now();
  const Status waited = keep_waiting(local_reduction, attempt, subject, started, timeout);
  if (trace_.on()) trace_wait(subject, started);
  return waited;
}

template <typename Attempt>
Status Session::keep_waiting(LocalReduction& local_reduction, Attempt& attempt,
                             const WaitSubject& subject, Nanos started, Nanos timeout) {
  subject.clock.begin(started, advances_.load(std::memory_order_relaxed));
  // Spinning for 20 us costs less than one futex sleep and wake on a busy machine. If there are
  // more ranks than cores, yielding to ranks with work costs less: four ranks on two cores exchange
  // 4 bytes in 4 us, and in 25 us with sleep.
  while (may_spin() && monotonic_now() - started < 20'000)
    for (int i = 0; i < 64; ++i, relax_cpu())
      if (attempt()) return {};
  while (may_yield() && monotonic_now() - started < 50'000)
    for (int i = 0; i < 4; ++i, sched_yield())
      if (attempt()) return {};
  const CountedWait counted{*this, started};  // also a slice of a wait, which ends without a result
  for (;;) {
    LocalReduction& watched = local_reduction_to_watch(local_reduction, subject);
    const uint32_t ticket = watched.ticket();
    watched.announce();
    const bool done = attempt();
    const bool moved = !done && &watched != &local_reduction && advance_streams();
    if (!done && !moved) watched.sleep(ticket, sleep_slice(subject));
    watched.retract();
    if (done || attempt()) break;
    GRADBUS_RETURN_IF_ERROR(between_sleeps(local_reduction, subject, started, timeout));
  }
  return {};
}

}  // namespace gradbus
