// The coordinator is gone or has returned. It may be another process, which knows no job.
#include "common/errors.h"
#include "common/log.h"
#include "proto/control.h"
#include "worker_agent/control/conductor.h"

namespace gradbus {
namespace {

constexpr Nanos kCoordinatorPatience = 60 * kSecond;

}  // namespace

// The jobs continue. Registrations of ranks wait until the coordinator returns.
void Conductor::coordinator_gone(const Status& why) {
  if (gone_since_ == 0) gone_since_ = monotonic_now();
  registrations_.clear();    // they will be announced
  unregistrations_.clear();  // they will be announced
  for (auto& [fd, client] : clients_) {
    if (client->state != AttachedClient::State::kJoining) continue;
    refuse_join(*client, why);
    rewatch(*client);
  }
  end_admin_calls(why);
  end_questions(why);
}

bool Conductor::coordinator_may_return() const {
  return gone_since_ == 0 || monotonic_now() - gone_since_ < kCoordinatorPatience;
}

void Conductor::end_patience() {
  if (connected_ || coordinator_may_return()) return;
  const Status lost =
      error("C501", "the coordinator " + options_.coordinator + " is gone for more than " +
                        std::to_string(kCoordinatorPatience / kSecond) + " s");
  for (auto& [fd, client] : clients_) {
    if (client->wanted.empty()) continue;
    for (const auto& [name, wanted] : client->wanted) refuse_tensor(*client, wanted.request, lost);
    client->wanted.clear();
    rewatch(*client);
  }
}

// After its Welcome.
void Conductor::announce_jobs() {
  gone_since_ = 0;
  for (auto& [id, running] : jobs_) {
    if (running->incarnation() == incarnation_) continue;
    for (const v1::AgentMessage& part : running->announce(incarnation_)) send(part);
    if (running->failed()) continue;
    spdlog::info("job \"{}\" is announced to the coordinator", running->name());
    ask_again(id);
  }
  for (const v1::AgentMessage& part : ps_jobs_.announce(incarnation_)) send(part);
}

// Repeats the pending requests of ranks: an earlier coordinator may have got them, this one has
// not.
void Conductor::ask_again(uint64_t job) {
  for (auto& [fd, client] : clients_) {
    if (client->job_id != job || client->state != AttachedClient::State::kRunning) continue;
    for (const auto& [name, wanted] : client->wanted) ask_for(*client, wanted.spec);
  }
  flush_registrations();
}

void Conductor::ask_for(const AttachedClient& client, const TensorSpec& spec) {
  v1::AgentMessage& message = registrations_[{client.job_id, client.rank}];
  v1::RegisterTensors& batch = *message.mutable_register_tensors();
  batch.set_job_id(client.job_id);
  batch.set_rank(client.rank);
  *batch.add_tensors() = spec_to(spec);
  if (batch.tensors_size() >= kTensorsPerMessageMax) flush_registrations();
}

}  // namespace gradbus
