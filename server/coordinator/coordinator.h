// The coordinator knows which agents are alive and which jobs they run. It is a pure state machine.
//
// Input is (event, now). Output is messages and log lines, through the outbox. `now` is the time of
// a LoopClock, which stops while the process is stopped. The coordinator has no socket, clock or
// thread: service.h calls it under one mutex, and tests call it with a fake clock. The same events
// and seed give the same output. The caller assigns agent ids, one per stream, and never reuses
// one.
//
// Messages of agents are not trusted. An invalid message is counted and changes nothing. It gets an
// answer if the sender waits for one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/metrics/metric_page.h"
#include "server/coordinator/drained_nodes.h"
#include "server/coordinator/job_traces.h"
#include "server/coordinator/jobs/coordinator_job.h"
#include "server/coordinator/jobs/coordinator_options.h"
#include "server/coordinator/jobs/outbox.h"
#include "server/coordinator/jobs/returning_jobs.h"
#include "server/coordinator/jobs/waiting_joins.h"
#include "server/coordinator/lost_nodes.h"
#include "server/coordinator/paths.h"

namespace gradbus {

class Coordinator {
 public:
  Coordinator(const CoordinatorOptions& options, Nanos now);

  // A stream has begun. Its first message must be Hello, within one lease.
  void connect(uint64_t agent, Nanos now);
  void receive(uint64_t agent, const v1::AgentMessage& message, Nanos now);
  // The stream has ended, for any reason. Has no effect if the agent is already gone.
  void disconnect(uint64_t agent, Nanos now);
  // Checks leases, start timeouts and stalls. Call it about every 100 ms.
  void tick(Nanos now);
  // The coordinator could not receive messages until `now`, so all leases restart.
  void renew_leases(Nanos now);

  // For the job's owner and root, according to the caller in the request. `address` is the source
  // of the call. Each call is logged with caller, address and result.
  v1::StopJobReply stop_job(const v1::StopJobRequest& request, const std::string& address,
                            Nanos now);
  v1::ChangeModeReply change_mode(const v1::ChangeModeRequest& request, const std::string& address,
                                  Nanos now);
  v1::ForgetNodeReply forget_node(const v1::ForgetNodeRequest& request, const std::string& address,
                                  Nanos now);
  // For whoever may call: a node belongs to nobody.
  v1::DrainNodeReply drain_node(const v1::DrainNodeRequest& request, const std::string& address,
                                Nanos now);
  // For the job's owner and root. `wait`: the job may start later.
  v1::TraceReply trace(const v1::TraceRequest& request, const std::string& address, Nanos now);
  v1::StatusReply status(const v1::StatusRequest& request, Nanos now,
                         size_t tensors_max = kStatusTensorsMax) const;
  // The events after this number, at most `newest` of them.
  v1::EventsReply events(uint64_t after, Nanos now, size_t newest = kEventsKept) const;
  // The last spans of traced jobs.
  Timelines::ById timelines() { return traces_.timelines().copies(); }
  // The program has read its configuration again, with this result.
  void reloaded(const Status& result, Nanos now);
  // False: the job of this question from take_questions() has ended, so nobody reads an answer.
  bool waits_for(const Question& question);
  // A question from take_questions() was answered. Its agent or job may be gone.
  void answered(const Question& question, const Result<std::string>& answer);

  // What to send, in order. Messages to agents that are gone are included: drop them.
  std::vector<Outgoing> take_outgoing() { return outbox_.take_outgoing(); }
  std::vector<Question> take_questions() { return outbox_.take_questions(); }
  std::vector<std::string> take_notes() { return outbox_.take_notes(); }
  uint64_t warnings() const { return warnings_; }
  // Figures of the cluster for a scrape.
  void add_metrics(MetricPage& page, Nanos now) const;

 private:
  struct Agent {
    bool welcomed = false;
    Nanos heard = 0;
    v1::Hello hello;
    AgentInfo info;
    v1::TransportCounters transport;
  };

  // coordinator_agents.cc
  void hello(uint64_t id, Agent& agent, const v1::Hello& message, Nanos now);
  Status may_attach(const v1::Hello& message) const;
  void welcome(uint64_t id);
  void refuse(uint64_t id, const Status& status);
  void leave(uint64_t id, const Agent& agent, Nanos now);
  void tell_event(EventKind kind, const Agent& agent, const std::string& text, Nanos now);
  void remember_lost(const Agent& agent, const std::string& why, Nanos now);
  void lose(uint64_t id, const std::string& why, Nanos now);
  void end_silent_leases(Nanos now);
  std::string describe(const Agent& agent) const;

  // coordinator.cc
  void dispatch(uint64_t id, Agent& agent, const v1::AgentMessage& message, Nanos now);
  void heartbeat(uint64_t id, Agent& agent, const v1::Heartbeat& message, Nanos now);
  void join_job(uint64_t id, const Agent& agent, const v1::JoinJob& message, Nanos now);
  Status check_join(const v1::JoinJob& message) const;
  void admit(uint64_t id, const Agent& agent, const v1::JoinJob& message, Nanos now);
  void admit_waiting(Nanos now);
  void register_tensors(uint64_t id, const v1::RegisterTensors& message, Nanos now);
  void refuse_tensors(uint64_t id, const v1::RegisterTensors& message, const Status& status);
  void rank_left(uint64_t id, const v1::RankLeft& message, Nanos now);
  AgentInfos shards() const;
  CoordinatorJob& create_job(const v1::JoinJob& message, Nanos now);
  CoordinatorJob* find_job(uint64_t job_id);
  CoordinatorJob* find_live_job(const std::string& name);
  void forget_ended_jobs(Nanos now);
  Status takes_jobs(uint64_t id, const Agent& agent, const CoordinatorJob* job,
                    const v1::JoinJob& join) const;
  bool checked(bool sensible, uint64_t agent, const char* what);

  // coordinator_return.cc
  void running_job(uint64_t id, const Agent& agent, const v1::RunningJob& part, Nanos now);
  void settle_returning(Nanos now);
  void take_back(ReturningJob job, Nanos now);
  Status may_take_back(const ReturningJob& job, Nanos now);
  void end_returning(const ReturningJob& job, const Status& why);
  void tell_lost(uint64_t agent, uint64_t job, const std::string& name, const Status& why);
  bool is_free(const std::string& name);  // no job of this name lives or returns

  // coordinator_admin.cc
  Status stop(const v1::StopJobRequest& request, Nanos now);
  Status stop_returning(ReturningJob& job, const v1::StopJobRequest& request, Nanos now);
  Status change(const v1::ChangeModeRequest& request, Nanos now);
  Result<CoordinatorJob*> job_for(const std::string& name, bool has_caller,
                                  const v1::Caller& caller, const std::string& wish);
  Status may_trace(const v1::TraceRequest& request);
  void admin_call(uint64_t id, const Agent& agent, const v1::AdminCall& call, Nanos now);
  void log_wish(const std::string& wish, const v1::Caller& caller, const std::string& address,
                const Status& result, Nanos now);

  // coordinator_drain.cc
  Status drain(const v1::DrainNodeRequest& request, Nanos now);
  Status undo_drain(const std::string& node, Nanos now);
  void tell_drained(const std::string& node);
  void take_drained(const Agent& agent, Nanos now);
  void add_drained(v1::StatusReply& reply, Nanos now) const;

  // coordinator_questions.cc
  void job_question(uint64_t id, const v1::JobQuestion& message);
  void send_answer(const Question& question, const Result<std::string>& answer);

  // coordinator_paths.cc
  void measure_next_path(Nanos now);
  std::set<uint64_t> busy_agents() const;
  void path_measured(uint64_t id, const v1::PathMeasured& message, Nanos now);

  // coordinator_metrics.cc
  void add_agents(MetricPage& page, Nanos now) const;

  // coordinator_status.cc
  void add_paths(v1::StatusReply& reply) const;
  v1::AgentStatus describe_agent(uint64_t id, const Agent& agent, Nanos now) const;
  void add_lost_nodes(v1::StatusReply& reply, Nanos now) const;
  void add_job_names(uint64_t id, v1::AgentStatus& status) const;

  const CoordinatorOptions options_;
  const Nanos started_at_;
  std::mt19937_64 random_;
  const uint64_t incarnation_;
  Outbox outbox_;
  std::map<uint64_t, Agent> agents_;
  std::map<uint64_t, std::unique_ptr<CoordinatorJob>> jobs_;
  std::map<std::string, uint64_t> live_jobs_;  // name -> id; may name one that has ended
  WaitingJoins waiting_;
  ReturningJobs returning_;
  Paths paths_;
  LostNodes lost_nodes_;
  DrainedNodes drained_nodes_;
  std::set<uint64_t> asking_;  // jobs with a question that is not answered
  JobTraces traces_{&outbox_};
  uint64_t warnings_ = 0;
  uint64_t nodes_lost_ = 0;
};

}  // namespace gradbus
