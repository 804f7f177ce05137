// A coordinator that was started anew: its nodes announce the jobs that they run.
#include <gmock/gmock.h>

#include "tests/unit/server/coordinator/cluster.h"

namespace gradbus::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

CoordinatorOptions with_seed(uint64_t seed) {
  CoordinatorOptions options;
  options.seed = seed;
  return options;
}

// A job "train" of ranks 0 and 2 on node-a, 1 and 3 on node-b, under a coordinator that is gone,
// and one that does not know it. There node-b is agent 1 and node-a agent 2.
class Returning : public testing::Test {
 protected:
  Returning() : before_(with_seed(1)), after_(with_seed(2)) {
    before_.user = {1000, "alice"};
    for (const uint64_t agent : {1, 2}) before_.hello(agent, agent == 1 ? "node-a" : "node-b");
    for (uint32_t rank = 0; rank < 4; ++rank)
      before_.join(Cluster::agent_of(rank), "train", rank, 4);
    started_ = before_.last(1).job_started();
    before_.clear();
    after_.hello(1, "node-b");
    after_.hello(2, "node-a");
    after_.clear();
  }

  v1::ReadyTensor make_ready(const std::string& name, uint64_t count = 10) {
    for (uint32_t rank = 0; rank < 4; ++rank)
      before_.register_tensors(Cluster::agent_of(rank), started_.job_id(), rank,
                               {make_spec(name, count)});
    const v1::ReadyTensor ready = before_.last(1).tensors_ready().tensors(0);
    before_.clear();
    return ready;
  }

  // All that a node says; `index`: of the node in the job.
  v1::RunningJob part(uint32_t index, const std::vector<v1::ReadyTensor>& tensors, uint32_t last) {
    v1::RunningJob job;
    job.set_job_id(started_.job_id());
    *job.mutable_started() = started_;
    job.set_index(index);
    for (const uint32_t rank : {index, index + 2}) {
      job.add_ranks()->set_rank(rank);
      job.mutable_ranks()->rbegin()->set_pid(100 + rank);
    }
    for (const v1::ReadyTensor& ready : tensors) *job.add_tensors()->mutable_ready() = ready;
    job.set_tensor_last(last);
    job.set_last(true);
    return job;
  }

  void announce(uint32_t index, const v1::RunningJob& job) {
    v1::AgentMessage message;
    *message.mutable_running_job() = job;
    after_.send(index == 0 ? 2 : 1, message);
  }
  static uint64_t now_of(uint32_t rank) { return rank % 2 == 0 ? 2 : 1; }

  Cluster before_;
  Cluster after_;
  v1::JobStarted started_;
};

TEST_F(Returning, AJobThatAllNodesAnnounceGoesOn) {
  const v1::ReadyTensor w = make_ready("w");
  announce(0, part(0, {w}, w.id()));
  EXPECT_EQ(after_.status().jobs_size(), 0);
  announce(1, part(1, {w}, w.id()));
  ASSERT_EQ(after_.status().jobs_size(), 1);
  const v1::JobStatus job = after_.status().jobs(0);
  EXPECT_EQ(job.state(), "running");
  EXPECT_EQ(job.user(), "alice");
  EXPECT_EQ(job.ranks_size(), 4);
  EXPECT_EQ(job.ranks(1).agent(), "node-b");
  EXPECT_EQ(job.tensors_size(), 1);
  EXPECT_TRUE(after_.inbox.empty());
  // New tensors get ids above those of before.
  for (uint32_t rank = 0; rank < 4; ++rank)
    after_.register_tensors(now_of(rank), started_.job_id(), rank, {make_spec("v", 5)});
  EXPECT_EQ(after_.last(1).tensors_ready().tensors(0).id(), w.id() + 1);
  for (uint32_t rank = 0; rank < 4; ++rank)
    after_.left(now_of(rank), started_.job_id(), rank, true);
  EXPECT_TRUE(after_.last(1).has_job_ended());
  EXPECT_EQ(after_.coordinator.warnings(), 0u);
}

TEST_F(Returning, WhatRanksAskMeanwhileIsAnsweredAfterwards) {
  announce(0, part(0, {}, 0));
  for (const uint32_t rank : {0, 2})
    after_.register_tensors(2, started_.job_id(), rank, {make_spec("v", 5)});
  EXPECT_TRUE(after_.inbox.empty());
  announce(1, part(1, {}, 0));
  for (const uint32_t rank : {1, 3})
    after_.register_tensors(1, started_.job_id(), rank, {make_spec("v", 5)});
  EXPECT_EQ(after_.last(1).tensors_ready().tensors(0).name(), "v");
  EXPECT_EQ(after_.coordinator.warnings(), 0u);
}

TEST_F(Returning, ANodeIsToldWhatItMissed) {
  const v1::ReadyTensor w = make_ready("w");
  const v1::ReadyTensor v = make_ready("v");
  announce(0, part(0, {w, v}, v.id()));
  announce(1, part(1, {w}, w.id()));  // the coordinator ended between two messages
  ASSERT_EQ(after_.inbox[1].size(), 1u);
  EXPECT_EQ(after_.last(1).tensors_ready().tensors(0).id(), v.id());
  EXPECT_TRUE(after_.inbox[2].empty());
}

TEST_F(Returning, ATensorThatOneNodeHasRetiredIsRetiredOnAll) {
  const v1::ReadyTensor w = make_ready("w");
  const v1::ReadyTensor v = make_ready("v");
  announce(0, part(0, {v}, v.id()));
  announce(1, part(1, {w, v}, v.id()));
  EXPECT_EQ(after_.last(1).tensors_retired().tensors(0), w.id());
  EXPECT_EQ(after_.status().jobs(0).tensors_size(), 1);
}

TEST_F(Returning, ReleasesOfBeforeCount) {
  const v1::ReadyTensor w = make_ready("w");
  v1::RunningJob a = part(0, {w}, w.id());
  a.mutable_tensors(0)->add_released(0);
  a.mutable_tensors(0)->add_released(2);
  v1::RunningJob b = part(1, {w}, w.id());
  b.mutable_tensors(0)->add_released(1);
  announce(0, a);
  announce(1, b);
  EXPECT_TRUE(after_.inbox.empty());
  v1::AgentMessage message;
  message.mutable_unregister_tensors()->set_job_id(started_.job_id());
  message.mutable_unregister_tensors()->set_rank(3);
  message.mutable_unregister_tensors()->add_tensors(w.id());
  after_.send(1, message);
  EXPECT_EQ(after_.last(2).tensors_retired().tensors(0), w.id());
}

TEST_F(Returning, AMissingNodeEndsTheJobForThoseThatCame) {
  announce(0, part(0, {}, 0));
  after_.advance(1500 * kMillisecond + kReturnMargin + kSecond);
  EXPECT_THAT(error_of(after_.last(2)), StartsWith("GB-J410"));
  EXPECT_THAT(error_of(after_.last(2)), HasSubstr("node-b"));
  after_.clear();
  announce(1, part(1, {}, 0));  // too late
  EXPECT_THAT(error_of(after_.last(1)), StartsWith("GB-J410"));
  EXPECT_EQ(after_.status().jobs_size(), 0);
}

TEST_F(Returning, NodesThatContradictEachOtherEndTheJob) {
  const v1::ReadyTensor w = make_ready("w");
  v1::ReadyTensor other = w;
  other.mutable_spec()->set_count(11);
  announce(0, part(0, {w}, w.id()));
  announce(1, part(1, {other}, w.id()));
  for (const uint64_t agent : {1, 2}) {
    EXPECT_THAT(error_of(after_.last(agent)), StartsWith("GB-J410"));
    EXPECT_THAT(error_of(after_.last(agent)), HasSubstr("\"w\""));
  }
}

TEST_F(Returning, OnlyTheJobsOwnNodesMayAnnounceIt) {
  after_.hello(3, "node-c");
  v1::AgentMessage message;
  *message.mutable_running_job() = part(1, {}, 0);  // it says that it is node-b
  after_.send(3, message);
  EXPECT_THAT(error_of(after_.last(3)), StartsWith("GB-"));
  EXPECT_EQ(after_.status().jobs_size(), 0);
}

TEST_F(Returning, ADifferentOwnerOrSecretIsAContradiction) {
  announce(0, part(0, {}, 0));
  started_.set_uid(0);
  announce(1, part(1, {}, 0));
  EXPECT_THAT(error_of(after_.last(1)), StartsWith("GB-J410"));
  EXPECT_EQ(after_.status().jobs_size(), 0);
}

TEST_F(Returning, ItsNameIsTaken) {
  announce(0, part(0, {}, 0));
  after_.user = {0, "root"};
  after_.join(2, "train", 0, 2);
  after_.advance(kWaitingJoinPatience + kSecond);
  EXPECT_THAT(error_of(after_.last(2)), StartsWith("GB-J402"));
  announce(1, part(1, {}, 0));
  EXPECT_EQ(after_.status().jobs(0).state(), "running");
}

TEST_F(Returning, RanksThatBeganToTakeItsNameGiveWay) {
  after_.join(2, "train", 0, 2);
  announce(0, part(0, {}, 0));
  announce(1, part(1, {}, 0));
  EXPECT_THAT(error_of(after_.last(2)), StartsWith("GB-J402"));
  EXPECT_EQ(
      after_.status().jobs(1).state() == "running" || after_.status().jobs(0).state() == "running",
      true);
}

TEST_F(Returning, ItsOwnerStopsItBeforeAllNodesAreThere) {
  announce(0, part(0, {}, 0));
  v1::StopJobRequest request;
  request.set_job("train");
  request.mutable_caller()->set_uid(1001);
  const auto refused = after_.coordinator.stop_job(request, "here", after_.now);
  EXPECT_THAT(refused.error().message(), StartsWith("GB-J408"));
  request.mutable_caller()->set_uid(1000);
  EXPECT_EQ(after_.coordinator.stop_job(request, "here", after_.now).error().message(), "");
  after_.collect();
  EXPECT_THAT(error_of(after_.last(2)), StartsWith("GB-J405"));
}

TEST_F(Returning, AFailureMeanwhileIsTheJobsEnd) {
  v1::RunningJob a = part(0, {}, 0);
  a.mutable_failed()->set_code(uint32_t(Code::kPeerLost));
  a.mutable_failed()->set_message("GB-P101 PEER_LOST: rank 0 died | next: look");
  announce(0, a);
  announce(1, part(1, {}, 0));
  EXPECT_THAT(error_of(after_.last(1)), StartsWith("GB-P101"));
}

TEST_F(Returning, RanksThatHaveLeftAreNotWaitedFor) {
  v1::RunningJob a = part(0, {}, 0);
  for (auto& rank : *a.mutable_ranks()) rank.set_left(true);
  announce(0, a);
  announce(1, part(1, {}, 0));
  for (const uint32_t rank : {1, 3}) after_.left(1, started_.job_id(), rank, true);
  EXPECT_TRUE(after_.last(2).has_job_ended());
}

TEST_F(Returning, ClaimsThatCannotBeChangeNothing) {
  v1::RunningJob wild = part(0, {}, 0);
  wild.mutable_started()->mutable_members(0)->set_agent_index(77);
  announce(0, wild);
  EXPECT_THAT(error_of(after_.last(2)), StartsWith("GB-D602"));
  v1::RunningJob middle = part(1, {}, 0);
  middle.clear_started();
  middle.set_job_id(4711);
  announce(1, middle);
  EXPECT_EQ(after_.status().jobs_size(), 0);
}

}  // namespace
}  // namespace gradbus::test
