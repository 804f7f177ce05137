// How a thread of a rank waits: it spins for a short time if cores are free, yields for a short
// time if they are not, and then sleeps on the local reduction. Between two sleeps it reads the
// agent's packets, advances operations, reports that the rank is blocked, and looks at the
// deadline.
//
// Any thread.
#pragma once

#include <sched.h>

#include <atomic>
#include <string>

#include "client_lib/src/agent_socket.h"
#include "client_lib/src/pending_operations.h"
#include "client_lib/src/rank_channel.h"
#include "client_lib/src/rank_tensors.h"
#include "client_lib/src/registration.h"
#include "client_lib/src/session_registry.h"
#include "client_lib/src/streams.h"
#include "client_lib/src/submitting_threads.h"
#include "client_lib/src/tensor.h"

namespace gradbus {

// For messages while waiting.
struct WaitSubject {
  const std::string& name;
  uint64_t round;  // 0: the registration
  WaitClock& clock;
  bool stream = false;
  uint32_t tensor = 0;  // id, for a trace; 0: the name is shown
};

// The parts of the session that a wait moves, reads or tells.
struct WaitParts {
  Session& session;
  const JoinedPacket& joined;
  SessionRegistry& registry;
  AgentSocket& socket;
  RankChannel& channel;
  RankTensors& tensors;
  PendingOperations& operations;
  Streams& streams;
};

class WaitLoop {
 public:
  WaitLoop(const WaitParts& parts, bool many_threads)
      : parts_(parts), submitting_threads_(many_threads) {}

  SubmittingThreads& submitting_threads() { return submitting_threads_; }

  // Calls `attempt` until it returns true. Fails with P110 after `timeout`, or with the job's
  // error.
  template <typename Attempt>
  Status until(LocalReduction& local_reduction, Attempt attempt, const WaitSubject& subject,
               Nanos timeout);
  // Until the agent has answered. Returns the refusal, if it did.
  Status until_settled(const Registration& registration, Nanos timeout, WaitClock& clock);
  // Until the thread that reads the agent's packets has stored `done`. `what`: for P110.
  Status until_stored(const std::atomic<bool>& done, Nanos timeout, Nanos sleep,
                      const std::string& what);
  // The job's error after a local reduction failed. Waits briefly for the agent's message.
  Status why_failed();

 private:
  template <typename Attempt>
  Status keep_waiting(LocalReduction& local_reduction, Attempt& attempt, const WaitSubject& subject,
                      Nanos started, Nanos timeout);
  void trace_wait(const WaitSubject& subject, Nanos started);
  bool may_spin() const {
    return parts_.joined.local_size <= parts_.joined.cores && parts_.joined.agents == 1;
  }
  bool may_yield() const {
    return parts_.joined.local_size > parts_.joined.cores && parts_.joined.agents == 1;
  }
  // The checks between two sleeps: packets, blocked report, deadline.
  Status between_sleeps(const LocalReduction& local_reduction, const WaitSubject& subject,
                        Nanos started, Nanos timeout);
  void report_when_due(const WaitSubject& subject, Nanos now);
  Status timed_out(const WaitSubject& subject, Nanos waited, const LocalReduction* local_reduction);
  Nanos sleep_slice(const WaitSubject& subject) const;
  Nanos socket_slice() const;

  struct CountedWait {
    RankChannel& channel;
    Nanos since;
    ~CountedWait() { channel.count_wait(since, monotonic_now()); }
  };

  const WaitParts parts_;
  SubmittingThreads submitting_threads_;
};

inline void relax_cpu() { __builtin_ia32_pause(); }

template <typename Attempt>
Status WaitLoop::until(LocalReduction& local_reduction, Attempt attempt, const WaitSubject& subject,
                       Nanos timeout) {
  if (attempt()) return {};
  const Nanos started = monotonic_now();
  const Status waited = keep_waiting(local_reduction, attempt, subject, started, timeout);
  if (parts_.channel.trace().on()) trace_wait(subject, started);
  return waited;
}

template <typename Attempt>
Status WaitLoop::keep_waiting(LocalReduction& local_reduction, Attempt& attempt,
                              const WaitSubject& subject, Nanos started, Nanos timeout) {
  subject.clock.begin(started, parts_.operations.advances());
  // Spinning for 20 us costs less than one futex sleep and wake on a busy machine. If there are
  // more ranks than cores, yielding to ranks with work costs less: four ranks on two cores exchange
  // 4 bytes in 4 us, and in 25 us with sleep.
  while (may_spin() && monotonic_now() - started < 20'000)
    for (int i = 0; i < 64; ++i, relax_cpu())
      if (attempt()) return {};
  while (may_yield() && monotonic_now() - started < 50'000)
    for (int i = 0; i < 4; ++i, sched_yield())
      if (attempt()) return {};
  const CountedWait counted{parts_.channel,
                            started};  // also a slice of a wait, which ends without a result
  for (;;) {
    LocalReduction& watched = parts_.streams.to_watch(local_reduction, subject.stream);
    const uint32_t ticket = watched.ticket();
    watched.announce();
    const bool done = attempt();
    const bool moved = !done && &watched != &local_reduction && parts_.operations.advance_one();
    if (!done && !moved) watched.sleep(ticket, sleep_slice(subject));
    watched.retract();
    if (done || attempt()) break;
    GRADBUS_RETURN_IF_ERROR(between_sleeps(local_reduction, subject, started, timeout));
  }
  return {};
}

}  // namespace gradbus
