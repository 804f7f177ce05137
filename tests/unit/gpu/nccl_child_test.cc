// Tests communicators in separate processes: real processes, with doubles of NCCL and of the CUDA
// plug-in, whose memory is host memory.
#include "worker_agent/gpu/nccl_child.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <numeric>
#include <vector>

#include "tests/unit/gpu/nccl_processes.h"

namespace gradbus {
namespace {

using testing::HasSubstr;

constexpr uint32_t kRanks = 3;
constexpr size_t kCount = 1000;
constexpr size_t kBytes = 4 * kCount * sizeof(float);
constexpr Nanos kPatience = 60 * kSecond;

class NcclChildren : public test::NcclProcesses {
 protected:
  // Starts and connects all, and gives each a rank buffer: rank r's elements are r + 1, r + 2, ...
  void start_all() {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      auto child = NcclChild::start(GRADBUS_NCCL_PROGRAM, "job a, rank " + std::to_string(rank));
      ASSERT_TRUE(child.ok()) << child.status().message();
      ranks_.push_back(child.take());
    }
    ASSERT_TRUE(ranks_[0]->new_id(soon()).ok());
    ASSERT_EQ(wait(*ranks_[0]), NcclChild::State::kIdle) << ranks_[0]->status().message();
    for (uint32_t rank = 0; rank < kRanks; ++rank)
      ASSERT_TRUE(ranks_[rank]->connect(ranks_[0]->id(), rank, kRanks, 0, soon()).ok());
    expect_all_idle();
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      // One of each kind.
      const CudaMemoryShare share =
          share_new_rank_buffer(kBytes, static_cast<CudaSharing>(1 + rank % 3));
      const Fd closes(share.descriptor);
      std::iota(rank_buffers_[rank], rank_buffers_[rank] + kCount, static_cast<float>(rank + 1));
      ASSERT_TRUE(ranks_[rank]->open(7, share, 0, soon()).ok());
    }
    expect_all_idle();
  }

  void reduce_all(Nanos deadline) {
    for (auto& rank : ranks_)
      ASSERT_TRUE(rank->all_reduce({.from = {7, 0}, .to = {7, kBytes / 2}, .count = kCount},
                                   NcclOp::kSum, deadline)
                      .ok());
  }

  static Nanos soon() { return monotonic_now() + kPatience; }

  static NcclChild::State wait(NcclChild& child) {
    const Nanos until = monotonic_now() + 2 * kPatience;
    while (child.poll(monotonic_now()) == NcclChild::State::kBusy && monotonic_now() < until) {
      pollfd readable{.fd = child.wait_fd(), .events = POLLIN, .revents = 0};
      poll(&readable, 1, 20);
    }
    return child.state();
  }

  void expect_all_idle() {
    for (auto& rank : ranks_)
      ASSERT_EQ(wait(*rank), NcclChild::State::kIdle) << rank->status().message();
  }

  void expect_all_failed(const char* words) {
    for (auto& rank : ranks_) {
      ASSERT_EQ(wait(*rank), NcclChild::State::kFailed);
      EXPECT_THAT(rank->status().message(), HasSubstr(words));
      EXPECT_FALSE(rank->new_id(soon()).ok());
    }
  }

  std::vector<std::unique_ptr<NcclChild>> ranks_;
};

TEST_F(NcclChildren, SumWhatTheAgentShares) {
  start_all();
  for (int round = 1; round <= 5; ++round) {
    reduce_all(soon());
    EXPECT_THAT(ranks_[0]->all_reduce({}, NcclOp::kSum, soon()).message(),
                HasSubstr("all_reduce while all_reduce is under way"));
    expect_all_idle();
    for (const float* rank_buffer : rank_buffers_)
      for (size_t i = 0; i < kCount; ++i)
        ASSERT_EQ(rank_buffer[2 * kCount + i], static_cast<float>(3 * i + 6)) << i;
  }
}

TEST_F(NcclChildren, OneSendsToAnother) {
  start_all();
  for (const uint32_t to : {1U, 2U}) {
    ASSERT_TRUE(ranks_[to]->receive({.to = {7, kBytes / 2}, .count = kCount}, 0, soon()).ok());
    ASSERT_TRUE(ranks_[0]->send({.from = {7, 0}, .count = kCount}, to, soon()).ok());
    expect_all_idle();
    for (size_t i = 0; i < kCount; ++i)
      ASSERT_EQ(rank_buffers_[to][2 * kCount + i], static_cast<float>(i + 1)) << i;
  }
}

TEST_F(NcclChildren, RankBuffersThatAreNotOpenAreRefused) {
  start_all();
  ASSERT_TRUE(
      ranks_[1]->all_reduce({.from = {7, 0}, .to = {8, 0}, .count = 1}, NcclOp::kSum, soon()).ok());
  EXPECT_EQ(wait(*ranks_[1]), NcclChild::State::kFailed);
  EXPECT_THAT(ranks_[1]->status().message(),
              HasSubstr("job a, rank 1: GB-D626 NCCL_FAILED: a collective: not connected, or in"));
}

TEST_F(NcclChildren, WhatStaysInProgressIsAborted) {
  setenv("GRADBUS_NCCL_DOUBLE", "slow", 1);
  start_all();
  reduce_all(monotonic_now() + kSecond / 5);
  expect_all_failed("all_reduce has not ended by its deadline, and was aborted");
}

TEST_F(NcclChildren, ACallThatNeverReturnsIsKilled) {
  setenv("GRADBUS_NCCL_DOUBLE", "hang_call", 1);
  start_all();
  reduce_all(monotonic_now() + kSecond / 5);
  expect_all_failed("GB-D627 NCCL_TIMEOUT: job a, rank ");
}

TEST_F(NcclChildren, AnAbortThatNeverReturnsIsKilled) {
  setenv("GRADBUS_NCCL_DOUBLE", "hang_abort", 1);
  start_all();
  reduce_all(monotonic_now() + kSecond / 5);
  expect_all_failed("nor has its abort: process ");
}

TEST_F(NcclChildren, ACrashIsOneLine) {
  setenv("GRADBUS_NCCL_DOUBLE", "crash", 1);
  start_all();
  reduce_all(soon());
  expect_all_failed("all_reduce: its process was ended by signal 6");
}

TEST_F(NcclChildren, AMissingLibraryIsOneLine) {
  setenv("GRADBUS_NCCL", "/nowhere/libnccl.so", 1);
  auto child = NcclChild::start(GRADBUS_NCCL_PROGRAM, "job a, rank 0");
  ASSERT_TRUE(child.ok());
  ASSERT_TRUE(child.value()->new_id(soon()).ok());
  EXPECT_EQ(wait(*child.value()), NcclChild::State::kFailed);
  EXPECT_THAT(child.value()->status().message(), HasSubstr("GB-D625 NO_NCCL: /nowhere/libnccl"));
}

TEST_F(NcclChildren, AMissingProgramIsOneLine) {
  const auto child = NcclChild::start("/nowhere/gradbus-nccl", "job a, rank 0");
  ASSERT_FALSE(child.ok());
  EXPECT_THAT(child.status().message(),
              HasSubstr("job a, rank 0: starting /nowhere/gradbus-nccl: No such file"));
}

}  // namespace
}  // namespace gradbus
