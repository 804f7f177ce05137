// The desk under many threads at once, without gRPC in between: what ThreadSanitizer can judge.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "proto/control.h"
#include "server/coordinator/attach_stream.h"

namespace gradbus {
namespace {

void live_one_life(Desk& desk, uint64_t id) {
  v1::AgentMessage hello;
  hello.mutable_hello()->set_name("node-" + std::to_string(id));
  hello.mutable_hello()->set_protocol(kControlProtocol);
  v1::AgentMessage join;
  join.mutable_join_job()->set_job("job-" + std::to_string(id));
  join.mutable_join_job()->set_world_size(1);
  desk.act([&](Coordinator& coordinator, Nanos now) { coordinator.connect(id, now); });
  desk.act([&](Coordinator& coordinator, Nanos now) { coordinator.receive(id, hello, now); });
  desk.act([&](Coordinator& coordinator, Nanos now) { coordinator.receive(id, join, now); });
  desk.act([&](Coordinator& coordinator, Nanos now) { coordinator.disconnect(id, now); });
}

TEST(Desk, ManyThreadsAtOnce) {
  CoordinatorOptions options;
  options.lease_ms = 600'000;
  Desk desk(options);
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&desk, thread] {
      for (uint64_t i = 0; i < 50; ++i) live_one_life(desk, 1 + thread * 50 + i);
    });
  }
  for (int i = 0; i < 50; ++i) {
    desk.act([](Coordinator& coordinator, Nanos now) { coordinator.tick(now); });
  }
  for (std::thread& thread : threads) thread.join();
  desk.act([](Coordinator& coordinator, Nanos now) {
    coordinator.tick(now);
    const auto status = coordinator.status({}, now);
    EXPECT_EQ(status.agents_size(), 0);
    EXPECT_EQ(status.jobs_size(), int(kEndedJobsMax));
    EXPECT_EQ(coordinator.warnings(), 0u);
  });
}

}  // namespace
}  // namespace gradbus
