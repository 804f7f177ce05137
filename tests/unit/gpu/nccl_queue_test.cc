// Tests turns of two nodes: real NCCL processes, with doubles of NCCL and of the plug-in, whose
// memory is host memory. The double sums calls of the ranks by their order. So two tensors that are
// mixed up have wrong sums.
#include "worker_agent/gpu/nccl_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <vector>

#include "common/errors.h"
#include "tests/unit/gpu/nccl_processes.h"

namespace gradbus {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr uint32_t kNodes = 2;
constexpr uint32_t kTensors = 3;
constexpr size_t kCount = 500;
constexpr Nanos kPatience = 60 * kSecond;

class NcclQueues : public test::NcclProcesses {
 protected:
  void TearDown() override {
    queues_.clear();
    NcclProcesses::TearDown();
  }

  void start(Nanos patience = kPatience) {
    for (uint32_t node = 0; node < kNodes; ++node) {
      auto child = NcclChild::start(GRADBUS_NCCL_PROGRAM,
                                    "job \"j\", node \"n" + std::to_string(node) + "\"");
      ASSERT_TRUE(child.ok()) << child.status().message();
      queues_.push_back(std::make_unique<NcclQueue>(child.take(), 0, patience));
      queues_[node]->reserve(kTensors);
    }
    queues_[0]->add({.kind = NcclQueue::Order::Kind::kNewId});
    for (uint32_t node = 0; node < kNodes; ++node)
      for (uint32_t tensor = 0; tensor < kTensors; ++tensor) open(node, tensor);
    const NcclQueue::Ended made = wait(0);
    ASSERT_TRUE(made.status.ok()) << made.status.message();
    for (uint32_t node = 0; node < kNodes; ++node)
      for (uint32_t tensor = 0; tensor < kTensors; ++tensor) {
        const NcclQueue::Ended opened = wait(node);
        EXPECT_FALSE(opened.turn);
        EXPECT_EQ(opened.tensor, tensor + 1);
        ASSERT_TRUE(opened.status.ok()) << opened.status.message();
      }
    for (uint32_t node = 0; node < kNodes; ++node)
      queues_[node]->add(
          {.kind = NcclQueue::Order::Kind::kConnect, .id = made.id, .rank = node, .ranks = kNodes});
    for (const NcclQueue::Ended& connected : wait_for_both())
      ASSERT_TRUE(connected.status.ok()) << connected.status.message();
  }

  void open(uint32_t node, uint32_t tensor) {
    NcclQueue::Order order{.kind = NcclQueue::Order::Kind::kOpen, .tensor = tensor + 1};
    order.rank_buffer = tensor;
    order.share = share_new_rank_buffer(kCount * sizeof(float));
    queues_[node]->add(order);
  }
  float* rank_buffer(uint32_t node, uint32_t tensor) {
    return rank_buffers_[node * kTensors + tensor];
  }

  static NcclQueue::Turn turn(uint64_t number, uint32_t tensor) {
    const NcclChild::Place place{tensor, 0};
    return {number, tensor + 1, {.from = place, .to = place, .count = kCount}};
  }
  // Both nodes must do this before either ends the turn.
  std::vector<NcclQueue::Ended> wait_for_both() {
    EXPECT_FALSE(queues_[0]->poll(monotonic_now()));
    const NcclQueue::Ended ended = wait(1);
    return {wait(0), ended};
  }
  NcclQueue::Ended wait(uint32_t node) {
    const Nanos until = monotonic_now() + 2 * kPatience;
    while (monotonic_now() < until) {
      if (auto ended = queues_[node]->poll(monotonic_now())) return *ended;
      pollfd readable{.fd = queues_[node]->wait_fd(), .events = POLLIN, .revents = 0};
      poll(&readable, 1, 20);
    }
    ADD_FAILURE() << "nothing has ended";
    return {};
  }

  std::vector<std::unique_ptr<NcclQueue>> queues_;
};

// Expect: turns follow their numbers, in whatever order they are announced; a gap is waited for.
TEST_F(NcclQueues, TurnsGoByTheirNumbers) {
  start();
  for (uint32_t node = 0; node < kNodes; ++node)
    for (uint32_t tensor = 0; tensor < kTensors; ++tensor)
      for (size_t i = 0; i < kCount; ++i)
        rank_buffer(node, tensor)[i] = static_cast<float>(100 * (tensor + 1) * (node + 1) + i);
  ASSERT_TRUE(queues_[0]->take_turn(turn(3, 0)).ok());
  ASSERT_TRUE(queues_[0]->take_turn(turn(2, 2)).ok());
  EXPECT_FALSE(queues_[0]->poll(monotonic_now()));
  ASSERT_TRUE(queues_[0]->take_turn(turn(1, 1)).ok());
  for (const auto& [number, tensor] : {std::pair{1, 1}, {2, 2}, {3, 0}})
    ASSERT_TRUE(queues_[1]->take_turn(turn(number, tensor)).ok());
  for (const uint32_t tensor : {2, 3, 1}) {
    for (const NcclQueue::Ended& ended : wait_for_both()) {
      ASSERT_TRUE(ended.status.ok()) << ended.status.message();
      EXPECT_TRUE(ended.turn);
      EXPECT_EQ(ended.tensor, tensor);
    }
  }
  for (uint32_t node = 0; node < kNodes; ++node)
    for (uint32_t tensor = 0; tensor < kTensors; ++tensor)
      for (size_t i = 0; i < kCount; ++i)
        ASSERT_EQ(rank_buffer(node, tensor)[i], static_cast<float>(300 * (tensor + 1) + 2 * i));
}

TEST_F(NcclQueues, NumbersThatCannotBeAreRefused) {
  start();
  EXPECT_EQ(queues_[0]->take_turn(turn(0, 0)).code(), Code::kCorrupt);
  EXPECT_EQ(queues_[0]->take_turn(turn(1 + kNcclRankBuffersMax, 0)).code(), Code::kCorrupt);
  ASSERT_TRUE(queues_[0]->take_turn(turn(2, 0)).ok());
  EXPECT_THAT(queues_[0]->take_turn(turn(2, 1)).message(), HasSubstr("turn 2 of NCCL"));
}

// Expect: all turns after a failed one fail too.
TEST_F(NcclQueues, WhatComesAfterAFailureFails) {
  setenv("GRADBUS_NCCL_DOUBLE", "hang_call", 1);
  start();
  ASSERT_TRUE(queues_[0]->take_turn(turn(1, 0)).ok());
  ASSERT_TRUE(queues_[0]->take_turn(turn(2, 1)).ok());
  EXPECT_FALSE(queues_[0]->poll(monotonic_now()));
  const auto late = queues_[0]->poll(monotonic_now() + 2 * kPatience);
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(late->tensor, 1u);
  EXPECT_THAT(nccl_status(late->status, "g").message(),
              StartsWith("GB-D627 NCCL_TIMEOUT: tensor \"g\", job \"j\", node \"n0\": all_reduce"));
  const NcclQueue::Ended next = wait(0);
  EXPECT_EQ(next.tensor, 2u);
  EXPECT_EQ(next.status.message(), late->status.message());
}

TEST(NcclStatus, NamesWhoBehindTheError) {
  const Status from_child = error("D626", "rank 0: all_reduce: why").with_context("job \"j\"");
  EXPECT_THAT(nccl_status(from_child, "g").message(),
              StartsWith("GB-D626 NCCL_FAILED: tensor \"g\", job \"j\": rank 0: all_reduce: why"));
  EXPECT_THAT(nccl_status(from_child, "").message(),
              StartsWith("GB-D626 NCCL_FAILED: job \"j\": rank 0: all_reduce: why"));
  EXPECT_EQ(nccl_status(from_child, "g").code(), from_child.code());
  EXPECT_TRUE(nccl_status(Status(), "g").ok());
}

}  // namespace
}  // namespace gradbus
