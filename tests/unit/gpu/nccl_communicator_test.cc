// Tests a communicator's states, deadlines and ends with a double of libnccl.
#include "worker_agent/gpu/nccl_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "tests/unit/gpu/nccl_double.h"

namespace gradbus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr Nanos kDeadline = kSecond;
constexpr uint32_t kRanks = 3;

class NcclRanks : public testing::Test {
 protected:
  void SetUp() override {
    const Result<NcclId> id = NcclCommunicator::new_id(nccl.library());
    ASSERT_TRUE(id.ok());
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      ranks.push_back(std::make_unique<NcclCommunicator>(nccl.library(),
                                                         "job a, rank " + std::to_string(rank)));
      ids.push_back(id.value());
      for (size_t i = 0; i < data[rank].size(); ++i)
        data[rank][i] = static_cast<float>(10 * rank + i);
    }
  }

  void connect_all() {
    for (uint32_t rank = 0; rank < kRanks; ++rank)
      ASSERT_TRUE(ranks[rank]->connect(ids[rank], rank, kRanks, kDeadline).ok());
    for (auto& rank : ranks) ASSERT_EQ(rank->poll(0), NcclState::kReady);
  }

  NcclCall call(uint32_t rank, size_t count) {
    return {.from = data[rank].data(),
            .to = result[rank].data(),
            .count = count,
            .deadline = kDeadline};
  }

  void finish_all() {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      ASSERT_EQ(ranks[rank]->poll(1), NcclState::kRunning);
      ASSERT_TRUE(nccl.is_done(result[rank].data()));
      ranks[rank]->finished();
      ASSERT_EQ(ranks[rank]->state(), NcclState::kReady);
    }
  }

  NcclDouble nccl;  // must outlive the ranks
  std::vector<NcclId> ids;
  std::array<std::array<float, 3>, kRanks> data = {};
  std::array<std::array<float, 9>, kRanks> result = {};
  std::vector<std::unique_ptr<NcclCommunicator>> ranks;
};

// 0 1 2, 10 11 12, 20 21 22.
TEST_F(NcclRanks, Sum) {
  connect_all();
  EXPECT_EQ(nccl.last_blocking, 0);
  for (uint32_t rank = 0; rank < kRanks; ++rank)
    ASSERT_TRUE(ranks[rank]->all_reduce(call(rank, 3), NcclOp::kSum).ok());
  finish_all();
  for (const auto& got : result) EXPECT_THAT(got, ElementsAre(30, 33, 36, 0, 0, 0, 0, 0, 0));
}

TEST_F(NcclRanks, ScatterGatherAndBroadcastInTurn) {
  connect_all();
  for (uint32_t rank = 0; rank < kRanks; ++rank)
    ASSERT_TRUE(ranks[rank]->reduce_scatter(call(rank, 1), NcclOp::kSum).ok());
  finish_all();
  EXPECT_EQ(result[1][0], 33);
  for (uint32_t rank = 0; rank < kRanks; ++rank)
    ASSERT_TRUE(ranks[rank]->all_gather(call(rank, 3)).ok());
  finish_all();
  EXPECT_THAT(result[2], ElementsAre(0, 1, 2, 10, 11, 12, 20, 21, 22));
  for (uint32_t rank = 0; rank < kRanks; ++rank)
    ASSERT_TRUE(ranks[rank]->broadcast(call(rank, 2), 1).ok());
  finish_all();
  EXPECT_EQ(result[0][1], 11);
  ranks.clear();
  EXPECT_EQ(nccl.alive, 0);
  EXPECT_EQ(nccl.aborted, 0);
}

// Rank 1 is not called.
TEST_F(NcclRanks, OneSendsToAnother) {
  connect_all();
  ASSERT_TRUE(ranks[2]->receive(call(2, 2), 0).ok());
  EXPECT_EQ(ranks[2]->poll(1), NcclState::kRunning);
  EXPECT_FALSE(nccl.is_done(result[2].data()));
  ASSERT_TRUE(ranks[0]->send(call(0, 2), 2).ok());
  EXPECT_EQ(ranks[0]->poll(1), NcclState::kRunning);
  EXPECT_TRUE(nccl.is_done(data[0].data()) && nccl.is_done(result[2].data()));
  ranks[0]->finished();
  ranks[2]->finished();
  EXPECT_THAT(result[2], ElementsAre(0, 1, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_EQ(ranks[1]->state(), NcclState::kReady);
  EXPECT_EQ(ranks[0]->state(), NcclState::kReady);
  ASSERT_TRUE(ranks[0]->receive(call(0, 1), 1).ok());
  EXPECT_EQ(ranks[0]->poll(kDeadline), NcclState::kFailed);
  EXPECT_THAT(ranks[0]->status().message(), HasSubstr("rank 0: receive has not ended"));
  EXPECT_THAT(ranks[0]->send(call(0, 1), 1).message(), HasSubstr("receive has not ended"));
}

TEST_F(NcclRanks, WhoWaitsForARankGivesUpAtItsDeadline) {
  ASSERT_TRUE(ranks[0]->connect(ids[0], 0, kRanks, kDeadline).ok());
  EXPECT_EQ(ranks[0]->poll(kDeadline - 1), NcclState::kConnecting);
  EXPECT_EQ(nccl.aborted, 0);
  EXPECT_EQ(ranks[0]->poll(kDeadline), NcclState::kFailed);
  EXPECT_EQ(nccl.aborted, 1);
  EXPECT_EQ(nccl.alive, 0);
  EXPECT_EQ(ranks[0]->status().code(), Code::kUnavailable);
  EXPECT_THAT(ranks[0]->status().message(),
              HasSubstr("GB-D627 NCCL_TIMEOUT: job a, rank 0: connect has not ended by"));
}

TEST_F(NcclRanks, AHungOperationIsAbortedAndTheNextOneRefused) {
  connect_all();
  nccl.hangs = true;
  ASSERT_TRUE(ranks[1]->all_reduce(call(1, 3), NcclOp::kSum).ok());
  EXPECT_EQ(ranks[1]->poll(kDeadline - 1), NcclState::kLaunching);
  EXPECT_EQ(ranks[1]->poll(kDeadline), NcclState::kFailed);
  EXPECT_THAT(ranks[1]->status().message(), HasSubstr("rank 1: all_reduce has not ended"));
  EXPECT_EQ(ranks[1]->all_reduce(call(1, 3), NcclOp::kSum).message(), ranks[1]->status().message());
  EXPECT_EQ(ranks[1]->poll(kDeadline + 1), NcclState::kFailed);
  EXPECT_EQ(nccl.aborted, 1);
}

// The operation was launched, but one rank never calls: the event never completes.
TEST_F(NcclRanks, ARunningOperationHasADeadlineToo) {
  connect_all();
  ASSERT_TRUE(ranks[0]->all_reduce(call(0, 3), NcclOp::kSum).ok());
  EXPECT_EQ(ranks[0]->poll(1), NcclState::kRunning);
  EXPECT_FALSE(nccl.is_done(result[0].data()));
  EXPECT_EQ(ranks[0]->poll(kDeadline), NcclState::kFailed);
  EXPECT_EQ(nccl.aborted, 1);
}

TEST_F(NcclRanks, ALostRankIsToldAtOnce) {
  connect_all();
  ASSERT_TRUE(ranks[0]->all_reduce(call(0, 3), NcclOp::kSum).ok());
  nccl.async = NcclResult::kRemoteError;
  EXPECT_EQ(ranks[0]->poll(1), NcclState::kFailed);
  EXPECT_THAT(ranks[0]->status().message(),
              HasSubstr("GB-D626 NCCL_FAILED: job a, rank 0: all_reduce: remote process exited"));
}

TEST_F(NcclRanks, OneOperationAtATime) {
  EXPECT_THAT(ranks[0]->all_reduce(call(0, 3), NcclOp::kSum).message(),
              HasSubstr("all_reduce while not connected"));
  connect_all();
  nccl.launches_slowly = true;
  ASSERT_TRUE(ranks[0]->all_gather(call(0, 3)).ok());
  EXPECT_EQ(ranks[0]->poll(1), NcclState::kLaunching);
  ranks[0]->finished();  // too early: nothing was recorded yet
  EXPECT_EQ(ranks[0]->state(), NcclState::kLaunching);
  EXPECT_THAT(ranks[0]->broadcast(call(0, 3), 0).message(), HasSubstr("something is under way"));
  nccl.launches_slowly = false;
  EXPECT_EQ(ranks[0]->poll(1), NcclState::kRunning);
  ranks.clear();
  EXPECT_EQ(nccl.aborted, 1);  // the one with a running operation
  EXPECT_EQ(nccl.alive, 0);
}

TEST_F(NcclRanks, ARefusedConnectLeavesNothing) {
  nccl.init_answer = NcclResult::kInvalidUsage;
  EXPECT_FALSE(ranks[0]->connect(ids[0], 0, kRanks, kDeadline).ok());
  EXPECT_EQ(ranks[0]->state(), NcclState::kFailed);
  EXPECT_EQ(nccl.alive, 0);
}

TEST(NcclLibrary, WhatIsMissingIsOneLine) {
  const auto missing = open_nccl("libnowhere.so.2");
  EXPECT_THAT(missing.status().message(), HasSubstr("GB-D625 NO_NCCL: libnowhere.so.2"));
  const auto other = open_nccl("libm.so.6");
  EXPECT_THAT(other.status().message(),
              HasSubstr("libm.so.6 lacks ncclGetErrorString ncclGetVersion"));
  NcclDouble old;
  old.version = 21605;
  EXPECT_THAT(check_nccl_version(old.library()).message(),
              HasSubstr("libnccl is version 2.16.5, older than 2.18.0"));
  old.version = 22809;
  EXPECT_TRUE(check_nccl_version(old.library()).ok());
}

// The symbols are those of a real libnccl.
TEST(NcclLibrary, TheRealOneCanBeLoaded) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "libnccl is not made for AddressSanitizer";
#endif
  const auto library = system_nccl();
  if (!library.ok()) GTEST_SKIP() << library.status().message();
  EXPECT_STREQ(library.value()->error_text(NcclResult::kSuccess), "no error");
}

}  // namespace
}  // namespace gradbus
