// What people may do: stop a job or change its mode (its owner and root), forget a lost node.
#include "server/coordinator/coordinator.h"

namespace gradbus {
namespace {

constexpr size_t kHostBytesMax = 255;

User user_of(const v1::Caller& caller) {
  return {caller.uid(), clean_text(caller.user(), kUserBytesMax)};
}

}  // namespace

Result<CoordinatorJob*> Coordinator::job_for(const std::string& name, bool has_caller,
                                             const v1::Caller& caller, const std::string& wish) {
  CoordinatorJob* job = find_live_job(name);
  if (job == nullptr) return short_error("J406", "no job " + in_quotes(name) + " is running");
  if (!has_caller)
    return short_error("J408", "the call does not say which user wants to " + wish,
                       "use the tools of the coordinator's version");
  if (caller.uid() == 0) return job;
  GRADBUS_RETURN_IF_ERROR(job->check_owner(user_of(caller), "who wants to " + wish));
  return job;
}

Status Coordinator::stop(const v1::StopJobRequest& request, Nanos now) {
  settle_returning(now);
  if (ReturningJob* returning = returning_.find(request.job()))
    return stop_returning(*returning, request, now);
  const Result<CoordinatorJob*> job =
      job_for(request.job(), request.has_caller(), request.caller(), "stop it");
  if (!job.ok()) return job.status();
  const std::string reason = request.reason().empty() ? "no reason was given" : request.reason();
  job.value()->fail(short_error("J405", "job " + in_quotes(request.job()) + ": " + reason), now);
  admit_waiting(now);
  return {};
}

// Its nodes have not all announced it yet.
Status Coordinator::stop_returning(ReturningJob& job, const v1::StopJobRequest& request,
                                   Nanos now) {
  const bool owner = request.has_caller() &&
                     (request.caller().uid() == 0 || request.caller().uid() == job.started.uid());
  if (!owner)
    return short_error("J408", "job " + in_quotes(job.name()) + " belongs to " +
                                   user_text({job.started.uid(), job.started.user()}) +
                                   "; refused " + user_text(user_of(request.caller())) +
                                   ", who wants to stop it");
  const std::string reason = request.reason().empty() ? "no reason was given" : request.reason();
  job.problem = short_error("J405", "job " + in_quotes(job.name()) + ": " + reason);
  settle_returning(now);
  return {};
}

Status Coordinator::change(const v1::ChangeModeRequest& request, Nanos now) {
  const Result<CoordinatorJob*> job =
      job_for(request.job(), request.has_caller(), request.caller(), "change its mode");
  return job.ok() ? job.value()->change_mode(request, now) : job.status();
}

void Coordinator::log_wish(const std::string& wish, const v1::Caller& caller,
                           const std::string& address, const Status& result, Nanos now) {
  std::string who = user_text(user_of(caller));
  if (!caller.host().empty()) who += " on " + clean_text(caller.host(), kHostBytesMax);
  const std::string asked = wish + " asked by " + who + ", " + address + ": ";
  if (result.ok()) return outbox_.note(asked + "done");
  outbox_.note_rarely(asked + "refused, " + result.message(), now);
}

v1::StopJobReply Coordinator::stop_job(const v1::StopJobRequest& request,
                                       const std::string& address, Nanos now) {
  const Status done = stop(request, now);
  log_wish("stop of job " + in_quotes(request.job()), request.caller(), address, done, now);
  v1::StopJobReply reply;
  if (!done.ok()) *reply.mutable_error() = to_proto(done);
  return reply;
}

v1::ChangeModeReply Coordinator::change_mode(const v1::ChangeModeRequest& request,
                                             const std::string& address, Nanos now) {
  const Status done = change(request, now);
  log_wish("mode " + in_quotes(request.mode()) + " for job " + in_quotes(request.job()),
           request.caller(), address, done, now);
  v1::ChangeModeReply reply;
  if (!done.ok()) *reply.mutable_error() = to_proto(done);
  return reply;
}

// A trace outlives its job until a tool has taken it.
Status Coordinator::may_trace(const v1::TraceRequest& request) {
  const std::string& name = request.job();
  const uint32_t uid = request.caller().uid();
  if (!is_printable_name(name, kJobNameBytesMax))
    return short_error("J406", "no job \"" + clean_text(name, 40) + "\" is running");
  if (traces_.has(name) && uid != 0 && uid != traces_.uid(name))
    return short_error("J408", "the trace of job " + in_quotes(name) + " belongs to uid " +
                                   std::to_string(traces_.uid(name)));
  if (find_live_job(name) == nullptr && request.has_caller() &&
      (traces_.has(name) || request.wait()))
    return {};
  return job_for(name, request.has_caller(), request.caller(), "trace it").status();
}

v1::TraceReply Coordinator::trace(const v1::TraceRequest& request, const std::string& address,
                                  Nanos now) {
  const bool begins = !traces_.has(request.job()) && !request.finish();
  const Status allowed = may_trace(request);
  if (begins || !allowed.ok())
    log_wish("trace of job " + in_quotes(request.job()), request.caller(), address, allowed, now);
  if (allowed.ok()) return traces_.take(request, find_live_job(request.job()), now);
  v1::TraceReply reply;
  *reply.mutable_error() = to_proto(allowed);
  return reply;
}

// Whoever has the cluster token may: a lost node belongs to nobody.
v1::ForgetNodeReply Coordinator::forget_node(const v1::ForgetNodeRequest& request,
                                             const std::string& address, Nanos now) {
  const std::string node = in_quotes(request.node());
  const Status done = lost_nodes_.forget(request.node())
                          ? Status()
                          : short_error("C505", "no lost node is called " + node);
  log_wish("forgetting node " + node, request.caller(), address, done, now);
  if (done.ok())
    outbox_.events().add(EventKind::kForgotten, request.node(), "",
                         "forgotten by " + user_text(user_of(request.caller())), now);
  v1::ForgetNodeReply reply;
  if (!done.ok()) *reply.mutable_error() = to_proto(done);
  return reply;
}

// The agent has read the user from its socket, and it has proven the cluster token.
void Coordinator::admin_call(uint64_t id, const Agent& agent, const v1::AdminCall& call,
                             Nanos now) {
  const std::string address = "through agent " + describe(agent);
  v1::CoordinatorMessage message;
  v1::AdminAnswer& answer = *message.mutable_admin_answer();
  answer.set_request(call.request());
  switch (call.call_case()) {
    case v1::AdminCall::kStop:
      *answer.mutable_error() = stop_job(call.stop(), address, now).error();
      break;
    case v1::AdminCall::kMode:
      *answer.mutable_error() = change_mode(call.mode(), address, now).error();
      break;
    case v1::AdminCall::kDrain:
      *answer.mutable_error() = drain_node(call.drain(), address, now).error();
      break;
    default: checked(false, id, "AdminCall"); return;
  }
  outbox_.send(id, std::move(message));
}

}  // namespace gradbus
