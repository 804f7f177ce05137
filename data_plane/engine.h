// The engine role: it moves gradients. One thread owns the data planes of all jobs and the
// transport. Its loop (run() in engine.cc) is the table of contents of the data path.
//
// The conductor sends commands with post(); the engine answers through the JobBroken mailbox. It
// knows jobs by their interface only (data_job.h); each role has its own commands.
// Without work it sleeps on one epoll with the doorbells of clients, the mailbox and the transport.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "common/fd.h"
#include "common/metrics/tally.h"
#include "data_plane/adaptive_spin.h"
#include "data_plane/data_job.h"
#include "data_plane/engine_command.h"
#include "data_plane/mailbox.h"
#include "data_plane/path_probe.h"
#include "data_plane/pending_links.h"
#include "transport/transport.h"

namespace gradbus {

class Engine {
  // A command of any type in the mailbox.
  struct PostedCommand {
    virtual ~PostedCommand() = default;
    virtual uint64_t job() const = 0;  // 0: none
    virtual void carry_out_in(Engine& engine) = 0;
  };
  template <typename Command>
  struct Posted final : PostedCommand {
    explicit Posted(Command posted) : command(std::move(posted)) {}
    uint64_t job() const override {
      if constexpr (requires { command.job; }) return command.job;
      return 0;
    }
    void carry_out_in(Engine& engine) override { carry_out(engine, std::move(command)); }
    Command command;
  };

 public:
  Engine(std::unique_ptr<Transport> transport, Mailbox<JobBroken>& broken, uint32_t cores);

  // Any thread.
  template <typename Command>
  void post(Command command) {
    commands_.post(std::make_unique<Posted<Command>>(std::move(command)));
  }
  void stop();
  TransportTotals transport_totals() const { return transport_->totals(); }
  uint64_t spins() const { return spins_.value(); }
  uint64_t spins_paid() const { return spins_paid_.value(); }
  const Tally& turns() const { return turns_; }  // grows while the thread is not stuck

  // The engine's thread; returns after stop().
  void run();
  // Runs one turn and returns how much it did. Tests call it without a thread.
  size_t do_work();

  // ---- for carry_out(): the engine's thread
  Transport& transport() { return *transport_; }
  void begin(std::unique_ptr<DataJob> job);
  // Null when the job is unknown, or this node has another role in it.
  template <typename Kind = DataJob>
  Kind* find(uint64_t job) {
    const auto at = jobs_.find(job);
    return at == jobs_.end() ? nullptr : dynamic_cast<Kind*>(at->second.get());
  }
  void expect_reports_by(Nanos at);
  void add_shards(const AddShards& command);
  void end(uint64_t job);
  void measure(MeasurePath command);
  void report_broken(const DataJob& job, const Status& status);
  // An eventfd that wakes the engine. Clients do not have it, so a write to it never waits. Any
  // thread.
  int bell() const { return bell_.get(); }
  // Wakes the engine when `fd` is readable. False: the process cannot watch one more.
  bool watch(int fd, uint32_t mode = 0);

 private:
  size_t take_commands();
  size_t poll_transport();
  size_t work_on_jobs();
  size_t work_on_probes();
  void rest();
  void wake_up();
  void spin(bool on);
  void sleep();

  void run_command(PostedCommand& command);
  void admit_pending_links(DataJob& job);
  void offer(DataJob& job, LinkId link, const FrameHeader& hello);
  void on_event(const TransportEvent& event);
  void tell(DataJob& job, const TransportEvent& event);
  void on_accepted(const TransportEvent& event);
  void on_probe_accepted(LinkId link);
  bool on_probe_event(const TransportEvent& event);
  DataJob* owner_of(LinkId link);
  void end(std::map<uint64_t, std::unique_ptr<DataJob>>::iterator job);
  int sleep_ms() const;
  void unwatch(int fd);
  bool nothing_waits() const;
  bool may_spin() const;

  std::unique_ptr<Transport> transport_;
  Mailbox<JobBroken>& broken_;
  const uint32_t cores_;
  Mailbox<std::unique_ptr<PostedCommand>> commands_;
  std::map<uint64_t, std::unique_ptr<DataJob>> jobs_;
  std::vector<std::unique_ptr<DataJob>> ending_;  // ending jobs that still have frames in flight
  PendingLinks pending_links_;
  Nanos reports_by_ = 0;                            // as in ExpectReports
  std::unique_ptr<PathProbe> probe_;                // probe of this engine; one at a time
  MeasurePath asked_;                               // the request for it
  std::vector<std::unique_ptr<ProbeEcho>> echoes_;  // answers to probes of others
  Fd epoll_;
  Fd bell_;               // its value has no meaning, so nobody reads it
  Nanos idle_since_ = 0;  // 0: it has work
  AdaptiveSpin spin_;
  bool spinning_ = false;
  Tally turns_;
  Counter spins_;
  Counter spins_paid_;  // spins that found work
  std::atomic<bool> stopping_{false};
};

}  // namespace gradbus
