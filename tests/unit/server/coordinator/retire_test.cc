// Tensors that ranks unregister: retired when the last rank has, or has left.
#include <gmock/gmock.h>

#include "tests/unit/server/coordinator/cluster.h"

namespace gradbus {
namespace {

using test::Cluster;
using test::make_spec;
using testing::ElementsAre;
using testing::IsEmpty;

class Retire : public testing::Test {
 protected:
  Retire() { job = cluster.start_job("train", 3); }

  void release(uint32_t rank, const std::vector<uint32_t>& ids) {
    v1::AgentMessage message;
    auto* done = message.mutable_unregister_tensors();
    done->set_job_id(job);
    done->set_rank(rank);
    for (const uint32_t id : ids) done->add_tensors(id);
    cluster.send(Cluster::agent_of(rank), message);
  }
  void ask(uint32_t rank, const v1::TensorSpec& spec) {
    cluster.register_tensors(Cluster::agent_of(rank), job, rank, {spec});
  }
  std::vector<uint32_t> retired(uint64_t agent) {
    std::vector<uint32_t> ids;
    for (const auto& message : cluster.inbox[agent])
      for (const uint32_t id : message.tensors_retired().tensors()) ids.push_back(id);
    return ids;
  }
  uint32_t ready(uint64_t agent) {
    uint32_t id = 0;
    for (const auto& message : cluster.inbox[agent])
      for (const auto& tensor : message.tensors_ready().tensors()) id = tensor.id();
    return id;
  }

  Cluster cluster;
  uint64_t job = 0;
};

TEST_F(Retire, WhenEveryRankHasUnregisteredIt) {
  const uint32_t a = cluster.make_ready(job, 3, make_spec("a", 10));
  const uint32_t b = cluster.make_ready(job, 3, make_spec("b", 10));
  release(0, {a, b});
  release(2, {b});
  EXPECT_THAT(retired(1), IsEmpty());
  release(1, {b, a});
  EXPECT_THAT(retired(1), ElementsAre(b));
  EXPECT_THAT(retired(2), ElementsAre(b));
  release(2, {a});
  EXPECT_THAT(retired(2), ElementsAre(b, a));
  EXPECT_EQ(cluster.status().jobs(0).tensors_size(), 0);
  cluster.clear();
  EXPECT_GT(cluster.make_ready(job, 3, make_spec("a", 10)), b) << "ids are not used again";
}

TEST_F(Retire, ARankThatHasLeftIsNotWaitedFor) {
  const uint32_t a = cluster.make_ready(job, 3, make_spec("a", 10));
  const uint32_t b = cluster.make_ready(job, 3, make_spec("b", 10));
  release(0, {a});
  release(1, {a});
  cluster.left(Cluster::agent_of(2), job, 2, true);
  EXPECT_THAT(retired(1), ElementsAre(a));
  release(1, {b});
  release(0, {b});
  EXPECT_THAT(retired(1), ElementsAre(a, b));
}

TEST_F(Retire, TheNameIsAnotherTensorForWhoHasUnregisteredIt) {
  const auto spec = make_spec("a", 10);
  const uint32_t old = cluster.make_ready(job, 3, spec);
  release(0, {old});
  ask(0, spec);
  EXPECT_THAT(cluster.inbox[1], IsEmpty()) << "rank 0 waits for the others";
  ask(1, spec);
  EXPECT_EQ(ready(2), old) << "rank 1 still has it";
  release(1, {old});
  release(2, {old});
  EXPECT_THAT(retired(1), ElementsAre(old));
  cluster.clear();
  ask(1, spec);
  ask(2, spec);
  EXPECT_EQ(ready(1), old + 1);
  EXPECT_EQ(ready(2), old + 1);
}

TEST_F(Retire, TheNewOneMayBeReadyBeforeTheOldOneIsRetired) {
  const uint32_t old = cluster.make_ready(job, 3, make_spec("a", 10));
  release(0, {old});
  const uint32_t id = cluster.make_ready(job, 3, make_spec("a", 20));
  EXPECT_EQ(id, old + 1);
  release(1, {old});
  release(2, {old});
  EXPECT_THAT(retired(2), ElementsAre(old));
  ASSERT_EQ(cluster.status().jobs(0).tensors_size(), 1);
  EXPECT_EQ(cluster.status().jobs(0).tensors(0).count(), 20u);
}

// An agent batches both: a wrapper lets go of a bucket, and right after it the last view is gone.
TEST_F(Retire, ViewsAndTheTensorInOneMessageMakeSense) {
  const uint32_t a = cluster.make_ready(job, 3, make_spec("a", 10));
  for (uint32_t rank = 0; rank < 3; ++rank) {
    v1::AgentMessage message;
    auto* done = message.mutable_unregister_tensors();
    done->set_job_id(job);
    done->set_rank(rank);
    done->add_tensors(a);
    done->add_viewed(a);
    cluster.send(Cluster::agent_of(rank), message);
  }
  EXPECT_THAT(retired(1), ElementsAre(a));
  EXPECT_THAT(cluster.notes, testing::Not(testing::Contains(testing::HasSubstr("makes no sense"))));
}

TEST_F(Retire, WhatMakesNoSenseIsIgnored) {
  const uint32_t a = cluster.make_ready(job, 3, make_spec("a", 10));
  for (int twice = 0; twice < 2; ++twice) release(0, {a, 0, 77, UINT32_MAX});
  v1::AgentMessage message;
  message.mutable_unregister_tensors()->set_job_id(job);
  message.mutable_unregister_tensors()->set_rank(1);
  message.mutable_unregister_tensors()->add_tensors(a);
  cluster.send(1, message);  // rank 1 is on agent 2
  release(2, {a});
  EXPECT_THAT(retired(1), IsEmpty());
  release(1, {a});
  EXPECT_THAT(retired(1), ElementsAre(a));
}

}  // namespace
}  // namespace gradbus
