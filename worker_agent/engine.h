// The engine role: it moves gradients. One thread owns the data planes of all jobs and the
// transport. Its loop (run() in engine.cc) is the table of contents of the data path.
//
// The conductor sends commands with post(); the engine answers through the JobBroken mailbox.
// Without work it sleeps on one epoll with the doorbells of clients, the mailbox and the transport.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "common/fd.h"
#include "transport/transport.h"
#include "worker_agent/adaptive_spin.h"
#include "worker_agent/engine_command.h"
#include "worker_agent/mailbox.h"
#include "worker_agent/path_probe.h"
#include "worker_agent/shard/ps_data_job.h"
#include "worker_agent/worker_data_job.h"

namespace gradbus {

class Engine {
 public:
  Engine(std::unique_ptr<Transport> transport, Mailbox<JobBroken>& broken, uint32_t cores);

  // Any thread.
  void post(EngineCommand command) { commands_.post(std::move(command)); }
  void stop();
  TransportTotals transport_totals() const { return transport_->totals(); }
  uint64_t spins() const { return spins_.value(); }
  uint64_t spins_paid() const { return spins_paid_.value(); }

  // The engine's thread; returns after stop().
  void run();
  // Runs one turn and returns how much it did. Tests call it without a thread.
  size_t do_work();

 private:
  size_t take_commands();
  size_t poll_transport();
  size_t work_on_jobs();
  size_t work_on_probes();
  void rest();
  void wake_up();
  void spin(bool on);
  void sleep();

  void on_command(StartJob command);
  void on_command(AddTensor command);
  void on_command(StartShardJob command);
  void on_command(const AddShardTensor& command);
  void begin(std::unique_ptr<DataJob> job);
  void admit_pending_links(DataJob& job);
  void on_command(const LoseShard& command);
  void on_command(const AddShards& command);
  void on_command(const EndJob& command);
  void on_command(MeasurePath command);
  void on_command(StartNccl command);
  void on_command(const OrderNccl& command);
  void on_command(const RemoveTensor& command);
  template <typename Command>
  void carry_out(Command command);
  void on_event(const TransportEvent& event);
  void tell(DataJob& job, const TransportEvent& event);
  void on_accepted(const TransportEvent& event);
  void on_probe_accepted(LinkId link);
  bool on_probe_event(const TransportEvent& event);
  DataJob* owner_of(LinkId link);
  void end(std::map<uint64_t, std::unique_ptr<DataJob>>::iterator job);
  void report_broken(const DataJob& job, const Status& status);
  WorkerDataJob* job_with_ranks(uint64_t id);
  template <typename Kind, typename Command>
  void add_tensor(Command command);
  int sleep_ms() const;
  void drop_pending_links();
  bool watch(int fd, uint32_t mode = 0);
  void unwatch(int fd);
  bool nothing_waits() const;
  bool may_spin() const;

  struct PendingLink {  // a link that came before its job's StartJob
    LinkId link;
    FrameHeader hello;
    Nanos deadline;
  };

  std::unique_ptr<Transport> transport_;
  Mailbox<JobBroken>& broken_;
  const uint32_t cores_;
  Mailbox<EngineCommand> commands_;
  std::map<uint64_t, std::unique_ptr<DataJob>> jobs_;
  std::vector<std::unique_ptr<DataJob>> ending_;  // ending jobs that still have frames in flight
  std::vector<PendingLink> pending_links_;
  std::unique_ptr<PathProbe> probe_;                // probe of this engine; one at a time
  MeasurePath asked_;                               // the request for it
  std::vector<std::unique_ptr<ProbeEcho>> echoes_;  // answers to probes of others
  Fd epoll_;
  Nanos idle_since_ = 0;  // 0: it has work
  AdaptiveSpin spin_;
  bool spinning_ = false;
  Counter spins_;
  Counter spins_paid_;  // spins that found work
  std::atomic<bool> stopping_{false};
};

}  // namespace gradbus
