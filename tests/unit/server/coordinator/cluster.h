// A coordinator under a fake clock, and words to speak to it as its agents.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "proto/control.h"
#include "proto/numbers.h"
#include "server/coordinator/coordinator.h"

namespace gradbus::test {

using Messages = std::vector<v1::CoordinatorMessage>;

inline v1::TensorSpec make_spec(const std::string& name, uint64_t count, DType dtype = DType::kF32,
                                CollectiveKind kind = CollectiveKind::kAllReduce,
                                ReduceOp op = ReduceOp::kSum, uint32_t root = 0) {
  v1::TensorSpec spec;
  spec.set_name(name);
  spec.set_count(count);
  spec.set_dtype(uint32_t(dtype));
  spec.set_op(uint32_t(kind == CollectiveKind::kAllReduce ? op : ReduceOp::kNone));
  spec.set_collective(uint32_t(kind));
  spec.set_root(root);
  return spec;
}

class Cluster {
 public:
  explicit Cluster(CoordinatorOptions options = {}) : coordinator(options, now) {}

  // ---- agents ----
  void hello(uint64_t agent, const std::string& name, uint32_t protocol = kControlProtocol,
             const std::map<std::string, std::string>& addresses = {{"tcp", "10.0.0.1:1"}},
             bool shard = false) {
    coordinator.connect(agent, now);
    v1::AgentMessage message;
    message.mutable_hello()->set_shard(shard);
    message.mutable_hello()->set_name(name);
    message.mutable_hello()->set_version("9.9");
    message.mutable_hello()->set_protocol(protocol);
    message.mutable_hello()->set_pid(1000 + agent);
    message.mutable_hello()->set_cores(8);
    message.mutable_hello()->mutable_addresses()->insert(addresses.begin(), addresses.end());
    send(agent, message);
    if (protocol == kControlProtocol) beating.insert(agent);
  }

  void shard(uint64_t agent, const std::string& name,
             const std::map<std::string, std::string>& addresses = {{"tcp", "10.0.0.9:9"}}) {
    hello(agent, name, kControlProtocol, addresses, true);
  }

  void send(uint64_t agent, const v1::AgentMessage& message) {
    coordinator.receive(agent, message, now);
    collect();
  }

  void drop(uint64_t agent) {
    beating.erase(agent);
    coordinator.disconnect(agent, now);
    collect();
  }

  // Time passes in ticks of 100 ms; agents in `beating` keep their leases.
  void advance(Nanos duration) {
    for (Nanos passed = 0; passed < duration; passed += 100 * kMillisecond) {
      now += 100 * kMillisecond;
      for (const uint64_t agent : beating) {
        v1::AgentMessage message;
        message.mutable_heartbeat();
        coordinator.receive(agent, message, now);
      }
      coordinator.tick(now);
      collect();
    }
  }

  // ---- jobs ----
  uint64_t joins = 0;
  std::map<std::pair<std::string, uint32_t>, uint64_t> join_of;  // the newest of each job and rank

  void join(uint64_t agent, const std::string& job, uint32_t rank, uint32_t world,
            uint64_t timeout_ms = 60'000) {
    v1::AgentMessage message;
    message.mutable_join_job()->set_job(job);
    message.mutable_join_job()->set_rank(rank);
    message.mutable_join_job()->set_world_size(world);
    message.mutable_join_job()->set_pid(100 + rank);
    message.mutable_join_job()->set_start_timeout_ms(timeout_ms);
    message.mutable_join_job()->set_join(join_of[{job, rank}] = ++joins);
    message.mutable_join_job()->set_uid(user.uid);
    message.mutable_join_job()->set_user(user.name);
    send(agent, message);
  }

  void register_tensors(uint64_t agent, uint64_t job, uint32_t rank,
                        const std::vector<v1::TensorSpec>& specs) {
    v1::AgentMessage message;
    message.mutable_register_tensors()->set_job_id(job);
    message.mutable_register_tensors()->set_rank(rank);
    for (const auto& spec : specs) *message.mutable_register_tensors()->add_tensors() = spec;
    send(agent, message);
  }

  void blocked(uint64_t agent, uint64_t job, uint32_t rank, const std::string& tensor,
               uint64_t round, uint64_t waited_ms, bool background = false) {
    v1::AgentMessage message;
    message.mutable_rank_blocked()->set_job_id(job);
    message.mutable_rank_blocked()->set_rank(rank);
    message.mutable_rank_blocked()->set_tensor(tensor);
    message.mutable_rank_blocked()->set_round(round);
    message.mutable_rank_blocked()->set_waited_ms(waited_ms);
    message.mutable_rank_blocked()->set_background(background);
    send(agent, message);
  }

  void report(uint64_t agent, uint64_t job, const std::string& tensor, uint64_t round,
              const std::vector<uint32_t>& posted, const std::vector<uint32_t>& missing) {
    v1::AgentMessage message;
    auto* report = message.mutable_progress_report();
    report->set_job_id(job);
    report->set_tensor(tensor);
    report->set_round(round);
    report->mutable_posted()->Add(posted.begin(), posted.end());
    report->mutable_missing()->Add(missing.begin(), missing.end());
    send(agent, message);
  }

  void left(uint64_t agent, uint64_t job, uint32_t rank, bool clean, const std::string& detail = "",
            const std::string& name = "") {
    v1::AgentMessage message;
    message.mutable_rank_left()->set_job_id(job);
    message.mutable_rank_left()->set_rank(rank);
    message.mutable_rank_left()->set_clean(clean);
    message.mutable_rank_left()->set_detail(detail);
    message.mutable_rank_left()->set_job(name);
    message.mutable_rank_left()->set_join(join_of[{name, rank}]);
    send(agent, message);
  }

  // Agents 1 ("node-a") and 2 ("node-b"); even ranks on 1, odd on 2. Returns the job's id.
  uint64_t start_job(const std::string& job, uint32_t world) {
    if (!beating.contains(1)) hello(1, "node-a");
    if (!beating.contains(2)) hello(2, "node-b");
    clear();
    for (uint32_t rank = 0; rank < world; ++rank) join(agent_of(rank), job, rank, world);
    EXPECT_EQ(inbox[1].size(), 1u);
    const uint64_t id = last(1).job_started().job_id();
    clear();
    return id;
  }
  static uint64_t agent_of(uint32_t rank) { return 1 + rank % 2; }

  // Registers `spec` by every rank and returns the ready tensor's id.
  uint32_t make_ready(uint64_t job, uint32_t world, const v1::TensorSpec& spec) {
    for (uint32_t rank = 0; rank < world; ++rank) {
      register_tensors(agent_of(rank), job, rank, {spec});
    }
    const uint32_t id = inbox[1].empty() ? 0 : inbox[1].back().tensors_ready().tensors(0).id();
    clear();
    return id;
  }

  v1::StatusReply status(const std::string& job = "") {
    v1::StatusRequest request;
    request.set_job(job);
    return coordinator.status(request, now);
  }

  // ---- what came out ----
  void collect() {
    for (const Outgoing& outgoing : coordinator.take_outgoing()) {
      const auto* message = outgoing.message.get();
      if (message != nullptr && message->has_measure_path()) {
        probes.push_back({outgoing.agent, message->measure_path()});
      } else if (message != nullptr) {
        inbox[outgoing.agent].push_back(*message);
      }
      if (outgoing.close) closed.insert(outgoing.agent);
    }
    for (std::string& note : coordinator.take_notes()) notes.push_back(std::move(note));
  }
  void clear() { inbox.clear(); }
  // The agent's last message; an empty one when there is none.
  const v1::CoordinatorMessage& last(uint64_t agent) {
    const Messages& messages = inbox[agent];
    return messages.empty() ? v1::CoordinatorMessage::default_instance() : messages.back();
  }

  User user;  // of ranks that join
  Nanos now = 1000 * kSecond;
  Coordinator coordinator;
  std::set<uint64_t> beating;
  std::map<uint64_t, Messages> inbox;  // without probes
  std::vector<std::pair<uint64_t, v1::MeasurePath>> probes;
  std::set<uint64_t> closed;
  std::vector<std::string> notes;
};

// The error of any message that has one; "" else.
inline std::string error_of(const v1::CoordinatorMessage& message) {
  using Message = v1::CoordinatorMessage;
  switch (message.message_case()) {
    case Message::kJoinRefused: return message.join_refused().error().message();
    case Message::kTensorRefused: return message.tensor_refused().error().message();
    case Message::kJobFailed: return message.job_failed().error().message();
    case Message::kRefused: return message.refused().error().message();
    default: return "";
  }
}

}  // namespace gradbus::test
