// The parts of a conductor around the one that a test is about: a table of clients, a coordinator
// that records, and an engine that no thread runs.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/worker_agent/clients/client_process.h"
#include "tests/unit/worker_agent/control/fake_coordinator.h"
#include "transport/registry.h"
#include "worker_agent/clients/client_table.h"
#include "worker_agent/control/pending_joins.h"
#include "worker_agent/control/running_jobs.h"

namespace gradbus::test {

inline constexpr Nanos kStart = 1000 * kSecond;
inline constexpr uint64_t kJob = 7;

inline std::unique_ptr<Transport> loopback() {
  auto transport = find_transport("loopback")->create({});
  EXPECT_TRUE(transport.ok());
  return transport.take();
}

// A job of `ranks` ranks, all on agent 3.
inline v1::JobStarted started_job(uint32_t ranks) {
  v1::JobStarted started;
  started.set_job("train");
  started.set_job_id(kJob);
  started.set_epoch(1);
  started.set_transport("loopback");
  started.set_secret(std::string(32, 's'));
  started.add_agents()->set_agent_id(3);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    v1::JobMember& member = *started.add_members();
    member.set_rank(rank);
    member.set_local_rank(rank);
  }
  return started;
}

class FakeNode : public testing::Test {
 protected:
  void welcome(uint64_t incarnation = 1) {
    connection_.welcomed(test::welcome(incarnation), kStart);
    coordinator_.take();
  }
  // A client that has not sent anything.
  AttachedClient& attach(uid_t uid = getuid()) {
    AcceptedClient accepted = processes_.emplace_back().accepted(uid);
    const int fd = accepted.socket.get();
    clients_.add(std::move(accepted), kStart);
    return *clients_.find(fd);
  }
  // A client that has joined job "train".
  AttachedClient& attach_joining(uint32_t rank, uint32_t world_size = 2) {
    AttachedClient& client = attach();
    client.state = AttachedClient::State::kJoining;
    client.job = "train";
    client.rank = rank;
    client.world_size = world_size;
    client.deadline = 0;
    return client;
  }
  // A client of a job that runs; there is no such job in `jobs_`.
  AttachedClient& attach_running(uint32_t rank) {
    AttachedClient& client = attach_joining(rank);
    client.state = AttachedClient::State::kRunning;
    client.job_id = kJob;
    return client;
  }
  // Starts job "train" with so many ranks, all of this node.
  WorkerControlJob& start_job(uint32_t ranks) {
    for (uint32_t rank = 0; rank < ranks; ++rank) attach_joining(rank, ranks);
    PendingJoins joins(clients_, connection_);
    const v1::JobStarted started = started_job(ranks);
    auto job = std::make_unique<WorkerControlJob>(started, 0, connection_.incarnation(),
                                                  joins.take(started, 0), quota_, devices_, nccl_,
                                                  engine_);
    EXPECT_TRUE(job->start(2).ok());
    for (ClientProcess& process : processes_) EXPECT_TRUE(process.template read<JoinedPacket>());
    jobs_.add(std::move(job));
    return *jobs_.find(kJob);
  }
  // By the order in which they were attached.
  ClientProcess& process(size_t index) { return processes_.at(index); }

  WatchedFds watched_;
  FakeCoordinator coordinator_;
  CoordinatorConnection connection_{"host:7400", hello_of("node-a"), coordinator_};
  Mailbox<JobBroken> broken_;
  Engine engine_{loopback(), broken_, 2};
  ShmQuota quota_{64 << 20, 0};
  Devices devices_{[] {}, {}};
  NcclUse nccl_;
  std::deque<ClientProcess> processes_;
  ClientTable clients_{watched_, 100};
  RunningJobs jobs_{engine_, connection_, nullptr};
};

}  // namespace gradbus::test
