// Parameter-server shards as the coordinator sees them: agents that take no ranks.
#include <gmock/gmock.h>

#include "tests/unit/server/coordinator/cluster.h"

namespace gradbus {
namespace {

using test::Cluster;
using test::error_of;
using test::make_spec;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint64_t kFirst = 11;  // shards
constexpr uint64_t kSecondShard = 12;

v1::TensorSpec on_shards(const std::string& mode, uint64_t count = 1 << 20) {
  v1::TensorSpec spec = make_spec("w", count);
  spec.set_mode(mode);
  return spec;
}

class Shards : public testing::Test {
 protected:
  void start(int shards = 2) {
    if (shards > 0) cluster.shard(kFirst, "shard-a");
    if (shards > 1) cluster.shard(kSecondShard, "shard-b");
    job = cluster.start_job("train", 2);
  }
  void register_by_all(const v1::TensorSpec& spec) {
    for (const uint32_t rank : {0, 1})
      cluster.register_tensors(Cluster::agent_of(rank), job, rank, {spec});
  }
  std::string refusal(const v1::TensorSpec& spec) {
    cluster.clear();
    register_by_all(spec);
    return error_of(cluster.last(1));
  }

  explicit Shards(const CoordinatorOptions& options = {}) : cluster(options) {}
  Cluster cluster;
  uint64_t job = 0;
};

// Jobs that keep the shards they began with.
class KeptShards : public Shards {
 protected:
  KeptShards() : Shards(options()) {}
  static CoordinatorOptions options() {
    CoordinatorOptions options;
    options.keep_shards = true;
    return options;
  }
};

// Expect: a job is told of all shards that it can reach, in one order, and they of it.
TEST_F(Shards, AJobTakesThoseThereAre) {
  cluster.shard(kSecondShard, "shard-b");
  cluster.shard(kFirst, "shard-a");
  cluster.shard(13, "far", {{"other", "x"}});
  cluster.hello(1, "node-a");
  cluster.hello(2, "node-b");
  cluster.clear();
  cluster.join(1, "train", 0, 2);
  cluster.join(2, "train", 1, 2);
  for (const uint64_t node : {uint64_t{1}, uint64_t{2}, kFirst, kSecondShard}) {
    ASSERT_THAT(cluster.inbox[node], SizeIs(1)) << node;
    const v1::JobStarted& started = cluster.inbox[node][0].job_started();
    ASSERT_EQ(started.shards_size(), 2);
    EXPECT_EQ(started.shards(0).agent_id(), kFirst);
    EXPECT_EQ(started.shards(1).name(), "shard-b");
    EXPECT_EQ(started.shards(1).address(), "10.0.0.9:9");
    EXPECT_EQ(started.agents_size(), 2);
  }
  EXPECT_THAT(cluster.inbox[13], IsEmpty());
}

// Expect: shards get every plan; theirs has chunks that they hold equally many of.
TEST_F(Shards, APlanSpreadsATensorEvenly) {
  start();
  register_by_all(on_shards("ps:async"));
  for (const uint64_t node : {uint64_t{1}, uint64_t{2}, kFirst, kSecondShard}) {
    const v1::ReadyTensor& ready = cluster.last(node).tensors_ready().tensors(0);
    EXPECT_EQ(ready.algorithm(), uint32_t(Algorithm::kShards));
    EXPECT_EQ(ready.spec().mode(), "ps:async");
    const uint64_t chunks = ((1 << 20) + ready.chunk_elements() - 1) / ready.chunk_elements();
    EXPECT_EQ(chunks % 2, 0u);
  }
  cluster.clear();
  cluster.make_ready(job, 2, make_spec("dense", 100));
  EXPECT_EQ(cluster.status("train").jobs(0).shards_size(), 2);
}

TEST_F(Shards, WithoutOneTheModeIsRefused) {
  start(0);
  EXPECT_THAT(refusal(on_shards("ps:sync")),
              AllOf(HasSubstr("GB-O912"), HasSubstr("--role=shard")));
}

// Expect: what agents should have checked is checked again.
TEST_F(Shards, ClaimsThatMakeNoSenseAreRefused) {
  start();
  EXPECT_THAT(refusal(on_shards("ps:nonsense")), HasSubstr("GB-O911"));
  EXPECT_THAT(refusal(on_shards("delayed:k=1")), HasSubstr("does not fit the tensor"));
  EXPECT_THAT(refusal(on_shards("ps:async,lr=0.010")), HasSubstr("does not fit the tensor"));
  EXPECT_THAT(refusal(on_shards("ps:quorum,q=3")), HasSubstr("wants 3 nodes, the job has 2"));
  v1::TensorSpec half = on_shards("ps:async");
  half.set_dtype(uint32_t(DType::kF16));
  EXPECT_THAT(refusal(half), HasSubstr("does not fit the tensor"));
}

TEST_F(Shards, WholeTensorsAreDense) {
  start();
  v1::TensorSpec spec = on_shards("ps:async,optimizer=lamb");
  spec.set_compression("fp16");
  EXPECT_THAT(refusal(spec), AllOf(HasSubstr("GB-O911"), HasSubstr("of dense gradients only"),
                                   HasSubstr("leave out the compression")));
}

// Expect: all are told of one communicator and of partitions that every shard gets as many of.
TEST_F(Shards, PayloadsGoThroughThem) {
  start();
  v1::TensorSpec spec = on_shards("ps:sync", 5 << 20);
  spec.set_compression("onebit");
  register_by_all(spec);
  for (const uint64_t node : {uint64_t{1}, uint64_t{2}, kFirst, kSecondShard}) {
    const v1::ReadyTensor& ready = cluster.last(node).tensors_ready().tensors(0);
    EXPECT_EQ(ready.algorithm(), uint32_t(Algorithm::kShards));
    EXPECT_EQ(ready.communicator(), "ps");
    EXPECT_EQ(ready.spec().compression(), "onebit");
    EXPECT_EQ((ready.spec().count() + ready.partition_elements() - 1) / ready.partition_elements(),
              6u);
  }
}

TEST_F(Shards, PayloadsThatTheyCannotTakeAreRefused) {
  start();
  v1::TensorSpec spec = on_shards("ps:sync");
  const auto with = [&](const std::string& compression) {
    spec.set_compression(compression);
    return refusal(spec);
  };
  EXPECT_THAT(with("onebit:communicator=allgather"),
              AllOf(HasSubstr("GB-O910"), HasSubstr("leave out communicator=allgather")));
  EXPECT_THAT(with("fp16:communicator=allreduce"), HasSubstr("leave out communicator=allreduce"));
}

TEST_F(Shards, ParametersTakeCodecsThatContract) {
  start();
  v1::TensorSpec spec = on_shards("ps:quorum,q=2");
  const auto with = [&](const std::string& compression) {
    spec.set_compression(compression);
    return refusal(spec);
  };
  EXPECT_THAT(with("signum"), AllOf(HasSubstr("GB-O910"), HasSubstr("signum does not"),
                                    HasSubstr("onebit"), HasSubstr("ps:sync")));
  EXPECT_THAT(with("qsgd:levels=1"), HasSubstr("qsgd does not"));
  EXPECT_THAT(with("topk:fidelity=10"), HasSubstr("leave it out"));
  spec.set_mode("ps:async");
  spec.set_compression("topk:ratio=0.1");
  register_by_all(spec);
  EXPECT_EQ(cluster.last(kFirst).tensors_ready().tensors(0).communicator(), "ps");
  EXPECT_THAT(with("powersgd"), HasSubstr("powersgd are summed on their way"));
}

// Expect: shards sum in the order of arrival, so there is no mode of theirs with the same bits.
TEST(DeterministicShards, AreRefused) {
  CoordinatorOptions options;
  options.plan.deterministic = true;
  Cluster cluster(options);
  cluster.shard(kFirst, "shard-a");
  const uint64_t job = cluster.start_job("train", 2);
  cluster.register_tensors(1, job, 0, {on_shards("ps:sync")});
  EXPECT_THAT(error_of(cluster.last(1)), AllOf(HasSubstr("GB-O911"), HasSubstr("--deterministic")));
}

TEST_F(Shards, RanksMustAgreeOnTheMode) {
  start();
  cluster.register_tensors(1, job, 0, {on_shards("ps:async")});
  cluster.register_tensors(2, job, 1, {on_shards("ps:sync")});
  EXPECT_THAT(error_of(cluster.last(1)), AllOf(HasSubstr("GB-O902"), HasSubstr("in mode ps:async"),
                                               HasSubstr("in mode ps:sync")));
}

// Expect: everybody, the other shard too, hears which one it was.
TEST_F(Shards, ALostOneEndsTheJobsThatUseIt) {
  start();
  register_by_all(on_shards("ps:sync"));
  cluster.clear();
  cluster.drop(kSecondShard);
  for (const uint64_t node : {uint64_t{1}, uint64_t{2}, kFirst})
    EXPECT_THAT(error_of(cluster.last(node)), AllOf(HasSubstr("GB-P103"), HasSubstr("shard-b")));
  EXPECT_EQ(cluster.status("train").jobs(0).state(), "failed");
}

// Expect: with copies everybody is told which one it was and the job goes on, until both shards of
// a chunk are lost; what has no copies may not come any more.
TEST_F(KeptShards, ALostOneThatHasCopiesElsewhere) {
  constexpr uint64_t kThird = 13, kFourth = 14;
  cluster.shard(kThird, "shard-c");
  cluster.shard(kFourth, "shard-d");
  start();
  register_by_all(on_shards("ps:async,replicas=2"));
  cluster.clear();
  cluster.drop(kSecondShard);
  for (const uint64_t node : {uint64_t{1}, uint64_t{2}, kFirst, kThird, kFourth}) {
    const v1::ShardLost& lost = cluster.last(node).shard_lost();
    EXPECT_EQ(lost.job_id(), job);
    EXPECT_EQ(lost.shard(), 1u);
    EXPECT_THAT(lost.text(), AllOf(HasSubstr("without shard shard-b: "), HasSubstr("is on shard-c"),
                                   HasSubstr("had copies of is on shard-a"), HasSubstr("\"w\"")));
  }
  EXPECT_TRUE(cluster.status("train").jobs(0).shards(1).lost());
  EXPECT_FALSE(cluster.status("train").jobs(0).shards(2).lost());
  EXPECT_THAT(refusal(on_shards("ps:sync", 8)), AllOf(HasSubstr("GB-P103"), HasSubstr("shard-b")));
  cluster.drop(kFourth);
  EXPECT_EQ(cluster.last(1).shard_lost().shard(), 3u);
  EXPECT_EQ(cluster.status("train").jobs(0).state(), "running");
  cluster.drop(kFirst);
  EXPECT_THAT(error_of(cluster.last(1)),
              AllOf(HasSubstr("GB-P103"), HasSubstr("shard-a"), HasSubstr("lost before")));
  EXPECT_EQ(cluster.status("train").jobs(0).state(), "failed");
}

// Expect: parameters have copies although nothing was said of it, whatever their gradients are;
// sums have not.
class CopiesByDefault : public Shards, public ::testing::WithParamInterface<const char*> {};

TEST_P(CopiesByDefault, AKilledShardIsLostAndTheJobRuns) {
  start();
  const std::string words = GetParam();
  const size_t slash = words.find('/');
  v1::TensorSpec spec = on_shards(words.substr(0, slash));
  if (slash != std::string::npos) spec.set_compression(words.substr(slash + 1));
  register_by_all(spec);
  cluster.drop(kSecondShard);
  EXPECT_EQ(cluster.last(1).shard_lost().shard(), 1u);
  EXPECT_EQ(cluster.status("train").jobs(0).state(), "running");
}
INSTANTIATE_TEST_SUITE_P(Parameters, CopiesByDefault,
                         ::testing::Values("ps:async", "ps:async,optimizer=lamb",
                                           "ps:async/onebit"));

TEST_F(Shards, ParametersOfWhichOneCopyWasAskedForAreLost) {
  start();
  register_by_all(on_shards("ps:async,replicas=1"));
  cluster.drop(kSecondShard);
  EXPECT_THAT(error_of(cluster.last(1)), HasSubstr("GB-P103"));
}

// Expect: one tensor without copies is enough.
TEST_F(Shards, ALostOneEndsAJobThatHasNotOnlyCopies) {
  start();
  register_by_all(on_shards("ps:async,replicas=2"));
  v1::TensorSpec single = on_shards("ps:sync");
  single.set_name("single");
  register_by_all(single);
  cluster.drop(kSecondShard);
  EXPECT_THAT(error_of(cluster.last(1)), HasSubstr("GB-P103"));
}

TEST_F(Shards, CopiesNeedTwo) {
  start(1);
  EXPECT_THAT(refusal(on_shards("ps:async,replicas=2")),
              AllOf(HasSubstr("GB-O911"), HasSubstr("wants 2 shards, the job has 1")));
}

// Expect: a job that has put nothing there goes on; what comes later is refused by name.
TEST_F(Shards, ALostOneThatNobodyUsesIsNoHarm) {
  start();
  cluster.make_ready(job, 2, make_spec("dense", 100));
  cluster.drop(kSecondShard);
  EXPECT_EQ(cluster.status("train").jobs(0).state(), "running");
  EXPECT_THAT(refusal(on_shards("ps:sync")), AllOf(HasSubstr("GB-P103"), HasSubstr("shard-b")));
}

TEST_F(Shards, HearOfTheEnd) {
  start();
  cluster.left(1, job, 0, true);
  cluster.left(2, job, 1, true);
  EXPECT_EQ(cluster.last(kFirst).job_ended().job_id(), job);
}

// Expect: by mode and node the last report of each tensor, together; what is delayed as its mode
// says; what nobody has registered is a warning and not shown.
TEST_F(Shards, StalenessIsShownByModeAndNode) {
  start();
  for (const char* name : {"first", "second", "third"}) {
    v1::TensorSpec spec = on_shards("ps:async");
    spec.set_name(name);
    register_by_all(spec);
  }
  v1::TensorSpec delayed = make_spec("later", 100);
  delayed.set_mode("delayed:k=3");
  cluster.make_ready(job, 2, delayed);
  const auto report = [&](uint64_t agent, const std::string& tensor, uint64_t rounds,
                          uint64_t steps, uint32_t most) {
    v1::AgentMessage beat;
    auto* counters = beat.mutable_heartbeat()->add_jobs();
    counters->set_job_id(job);
    auto* staleness = counters->add_staleness();
    staleness->set_tensor(tensor);
    staleness->set_rounds(rounds);
    staleness->set_steps(steps);
    staleness->set_most(most);
    cluster.send(agent, beat);
  };
  report(1, "first", 100, 900, 99);
  report(1, "first", 4, 8, 5);
  report(1, "second", 1, 2, 2);
  report(2, "third", 2, 0, 0);
  EXPECT_EQ(cluster.coordinator.warnings(), 0u);
  report(2, "nothing", 1, 1, 1);
  EXPECT_EQ(cluster.coordinator.warnings(), 1u);
  const v1::JobStatus shown = cluster.status("train").jobs(0);
  ASSERT_EQ(shown.staleness_size(), 3);
  EXPECT_EQ(shown.staleness(0).mode(), "delayed:k=3");
  EXPECT_EQ(shown.staleness(0).agent(), "");
  EXPECT_EQ(shown.staleness(0).mean(), 3);
  EXPECT_EQ(shown.staleness(1).mode(), "ps:async");
  EXPECT_EQ(shown.staleness(1).mean(), 2) << "(8 + 2) / (4 + 1)";
  EXPECT_EQ(shown.staleness(1).most(), 5u);
  EXPECT_EQ(shown.staleness(2).most(), 0u);
  EXPECT_NE(shown.staleness(1).agent(), shown.staleness(2).agent());
  cluster.left(1, job, 0, true);
  cluster.left(2, job, 1, true);
  EXPECT_EQ(cluster.status("train").jobs(0).staleness_size(), 0) << "it has ended";
}

// Expect: what a shard says of a job counts as an agent's word.
TEST_F(Shards, ReportFailuresAndTraffic) {
  start();
  v1::AgentMessage beat;
  auto* counters = beat.mutable_heartbeat()->add_jobs();
  counters->set_job_id(job);
  counters->set_received_bytes(7);
  cluster.send(kFirst, beat);
  EXPECT_EQ(cluster.status("train").jobs(0).shards(0).received_bytes(), 7u);
  EXPECT_EQ(cluster.coordinator.warnings(), 0u);
  v1::AgentMessage failure;
  failure.mutable_job_failure()->set_job_id(job);
  failure.mutable_job_failure()->mutable_error()->set_code(uint32_t(Code::kCorrupt));
  failure.mutable_job_failure()->mutable_error()->set_message(
      "GB-D601 BAD_FRAME: a push | next: x");
  cluster.send(kFirst, failure);
  EXPECT_THAT(error_of(cluster.last(2)), HasSubstr("GB-D601"));
}

}  // namespace
}  // namespace gradbus
