// Agents read and write the shards' state of compressed tensors through real engines. A job that
// starts with such state must continue with the same bits as the job that wrote it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/unit/data_plane/engine_cluster.h"
#include "transport/faulty/faulty.h"

namespace gradbus {
namespace {

using test::Cluster;
using test::kJob;
using test::Layout;
using testing::Each;
using Vector = std::vector<float>;

constexpr uint32_t kAgents = 2, kRanks = 2;  // ranks per agent
constexpr uint64_t kChunk = 64, kPartition = 128;

std::unique_ptr<Transport> unreliable() {
  static uint64_t seed = 900;
  return make_faulty(test::loopback(),
                     {.seed = ++seed, .busy = 0.3, .delay = 0.3, .reorder = true});
}

struct KeptCase {
  const char* mode;
  const char* codec;
  uint32_t shards_after = 2;
  bool faults = false;
  bool large = false;  // whether a partition exceeds one frame

  uint64_t chunk() const { return large ? 1 << 15 : kChunk; }
  uint64_t partition() const { return large ? 10 * chunk() : kPartition; }
  uint64_t count() const { return large ? partition() + 1001 : 300; }
};

void PrintTo(const KeptCase& kept, std::ostream* out) {
  *out << kept.codec << " " << kept.mode << (kept.large ? " large" : "");
}

// A job of two agents with two ranks each, and one compressed tensor on shards.
class Job {
 public:
  explicit Job(const KeptCase& kept, uint32_t shards = 2) : count_(kept.count()) {
    Layout layout{.agents = kAgents, .ranks_per_agent = kRanks, .shards = shards};
    if (kept.faults) layout.transport = unreliable;
    cluster_ = std::make_unique<Cluster>(layout);
    TensorSpec spec;
    spec.name = "t";
    spec.count = count_;
    spec.op = ReduceOp::kAverage;
    cluster_->add_compressed(
        0, spec, kept.chunk(), Algorithm::kShards,
        {parse_compression(kept.codec).take(), Communicator::kPs, kept.partition(), 0}, kept.mode);
  }

  // The agent's first rank brings `values`, its other ranks `others`.
  void start(uint32_t agent, const Submission& record, const Vector& values, float others) {
    ++rounds_[agent];
    for (uint32_t local = 0; local < kRanks; ++local) {
      float* const rank_buffer = cluster_->data(agent, local, 0);
      local == 0 ? (void)std::ranges::copy(values, rank_buffer)
                 : (void)std::fill_n(rank_buffer, count_, others);
      cluster_->post(agent, local, 0, rounds_[agent], record);
    }
  }
  Vector result(uint32_t agent) {
    for (uint32_t local = 0; local < kRanks; ++local)
      EXPECT_EQ(cluster_->completions(agent, local, 1).size(), 1U) << why();
    const float* data = cluster_->data(agent, 0, 0);
    return {data, data + count_};
  }

  void push(uint32_t agent, const Vector& values) { start(agent, posted(), values, 0); }
  void keep(uint32_t agent, PsRequest kind, uint32_t part, const Vector& values) {
    Submission record = posted();
    record.ps_request = static_cast<uint64_t>(kind);
    record.optimizer_state_part = part;
    start(agent, record, values, -0.0F);
  }
  // The parameters of agent 0 become those of all. Their mean over ranks counts.
  void set(Vector parameters) {
    const Vector wanted = parameters;
    for (float& value : parameters) value *= kRanks;
    for (uint32_t agent = 0; agent < kAgents; ++agent)
      push(agent, agent == 0 ? parameters : Vector(count_, -7));
    for (uint32_t agent = 0; agent < kAgents; ++agent) ASSERT_EQ(result(agent), wanted);
  }
  Vector read(uint32_t agent, uint32_t part) {
    keep(agent, PsRequest::kRead, part, Vector(count_, 1000));
    return result(agent);
  }
  // Returns what agent 0 gets. The other agent may post before it.
  Vector write(uint32_t part, const Vector& values) {
    for (const uint32_t agent : {1, 0})
      keep(agent, PsRequest::kWrite, part, agent == 0 ? values : Vector(count_, -7));
    result(1);
    return result(0);
  }
  Vector flush() {
    for (uint32_t agent = 0; agent < kAgents; ++agent)
      keep(agent, PsRequest::kParameters, 0, Vector(count_, 1000));
    const Vector first = result(0);
    EXPECT_EQ(result(1), first);
    return first;
  }
  Vector residual(uint32_t agent) {
    start(agent, memory(SubmissionKind::kReadResidualState), Vector(count_), 9);
    return result(agent);
  }
  void set_residual(uint32_t agent, const Vector& values) {
    start(agent, memory(SubmissionKind::kWriteResidualState), values, 0);
    result(agent);
  }

  // Both agents push; equal numbers have equal gradients. Returns the agents' parameters after each
  // push.
  std::vector<Vector> train(uint32_t first, uint32_t last) {
    std::vector<Vector> results;
    for (uint32_t number = first; number < last; ++number) {
      for (uint32_t agent = 0; agent < kAgents; ++agent) {
        std::mt19937 random(number * kAgents + agent);
        Vector gradient(count_);
        for (float& value : gradient) value = static_cast<float>(random() % 2001) * 1e-3F - 1;
        push(agent, gradient);
        results.push_back(result(agent));
      }
    }
    return results;
  }

  void lose(uint32_t shard) {
    cluster_->kill(kAgents + shard);
    for (uint32_t node = 0; node < cluster_->nodes.size(); ++node)
      if (node != kAgents + shard) cluster_->nodes[node]->engine.post(LoseShard{kJob, shard});
  }
  Cluster& cluster() { return *cluster_; }
  uint64_t count() const { return count_; }

 private:
  static Submission posted() {
    Submission record{};
    record.kind = static_cast<uint32_t>(SubmissionKind::kPosted);
    return record;
  }
  static Submission memory(SubmissionKind kind) {
    Submission record{};
    record.kind = static_cast<uint32_t>(kind);
    record.residual_state_part = static_cast<uint64_t>(ResidualStatePart::kResidual);
    return record;
  }
  std::string why() {
    std::string text;
    for (auto& node : cluster_->nodes)
      for (const JobBroken& broken : node->broken.take()) text += broken.status.message() + "\n";
    return text;
  }

  const uint64_t count_;
  std::unique_ptr<Cluster> cluster_;
  std::vector<uint64_t> rounds_ = std::vector<uint64_t>(kAgents);
};

Vector ramp(uint64_t count) {
  Vector values(count);
  for (uint64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 97) * 0.25F - 12;
  return values;
}

// ---- torch's formula, v = 0.5 v + g, with numbers that half floats represent

TEST(Kept, PartsAreTheOptimizers) {
  Job job({"ps:async,lr=1,momentum=0.5", "fp16"});
  job.set(Vector(job.count(), 100));
  job.push(0, Vector(job.count(), 8));  // a mean of 4
  job.result(0);
  job.push(1, Vector(job.count(), 4));
  EXPECT_THAT(job.result(1), Each(92.0F));
  for (const uint32_t agent : {0, 1}) {
    EXPECT_THAT(job.read(agent, 1), Each(4.0F)) << "0.5 * 4 + 2";
    EXPECT_THAT(job.read(agent, 2), Each(2.0F)) << "steps";
    EXPECT_THAT(job.read(agent, 0), Each(92.0F));
  }
}

TEST(Kept, PartsCanBeWrittenByAgent0) {
  for (const bool faults : {false, true}) {
    Job job({"ps:async,lr=1,momentum=0.5", "fp16", 2, faults});
    job.set(Vector(job.count(), 100));
    EXPECT_THAT(job.write(0, Vector(job.count(), 50)), Each(50.0F));
    EXPECT_THAT(job.write(1, Vector(job.count(), 8)), Each(50.0F));
    EXPECT_THAT(job.write(2, Vector(job.count(), 3)), Each(50.0F));
    EXPECT_THAT(job.read(1, 1), Each(8.0F));
    EXPECT_THAT(job.read(1, 2), Each(3.0F));
    job.push(1, Vector(job.count(), 4));
    EXPECT_THAT(job.result(1), Each(44.0F)) << "v = 0.5 * 8 + 2";
    EXPECT_THAT(job.read(0, 2), Each(4.0F));
  }
}

// Expect: an agent that reads before it has parameters gets them completely later.
TEST(Kept, ReadInTheFirstRound) {
  Job job({"ps:async,lr=1,momentum=0.5", "onebit"});
  job.push(0, ramp(job.count()));
  const Vector parameters = job.result(0);
  EXPECT_THAT(job.read(1, 1), Each(0.0F));
  job.push(1, Vector(job.count()));
  EXPECT_EQ(job.result(1), parameters);
}

// ---- comparison with a job that continues

class KeptOf : public testing::TestWithParam<KeptCase> {};

// Expect: reading the state does not change a job's bits. A job that starts with the read state and
// the agents' residuals has the same bits, too.
TEST_P(KeptOf, AnotherJobGoesOn) {
  const KeptCase& kept = GetParam();
  Job alone(kept);
  ASSERT_NO_FATAL_FAILURE(alone.set(ramp(alone.count())));
  alone.train(0, 5);
  alone.flush();
  const std::vector<Vector> wanted = alone.train(5, 9);
  const Vector end = alone.flush();

  Job read(kept);
  ASSERT_NO_FATAL_FAILURE(read.set(ramp(read.count())));
  read.train(0, 5);
  std::vector<Vector> parts = {read.flush()};
  for (uint32_t part = 1; part < parse_mode(kept.mode).value().optimizer_state_parts(); ++part) {
    parts.push_back(read.read(0, part));
    ASSERT_EQ(read.read(1, part), parts.back());
  }
  std::vector<Vector> residuals;
  for (uint32_t agent = 0; agent < kAgents; ++agent) residuals.push_back(read.residual(agent));
  EXPECT_EQ(read.train(5, 9), wanted);
  EXPECT_EQ(read.flush(), end);

  Job after(kept, kept.shards_after);
  for (uint32_t agent = 0; agent < kAgents; ++agent) after.set_residual(agent, residuals[agent]);
  ASSERT_NO_FATAL_FAILURE(after.set(parts[0]));
  for (uint32_t part = 0; part < parts.size(); ++part)
    EXPECT_EQ(after.write(part, parts[part]), parts[0]);
  EXPECT_EQ(after.train(5, 9), wanted);
  EXPECT_EQ(after.flush(), end);
}

class KeptTwice : public testing::TestWithParam<KeptCase> {};

// Expect: with copies, a shard may be lost at any moment of a round that reads or writes.
TEST_P(KeptTwice, LossesAtEveryMoment) {
  const KeptCase& kept = GetParam();
  Job whole(kept);
  ASSERT_NO_FATAL_FAILURE(whole.set(ramp(whole.count())));
  whole.train(0, 3);
  const Vector values = ramp(whole.count());
  const Vector remembered = whole.read(0, 1);
  whole.write(1, values);
  const std::vector<Vector> wanted = whole.train(3, 5);
  for (int moment = 0; moment < 24; ++moment) {
    for (const bool writes : {false, true}) {
      Job job(kept);
      ASSERT_NO_FATAL_FAILURE(job.set(ramp(job.count())));
      job.train(0, 3);
      const auto lose = [&] {
        job.cluster().turn(moment / 2 * (kept.faults ? 6 : 1));
        job.lose(static_cast<uint32_t>(moment % 2));
      };
      job.keep(0, PsRequest::kRead, 1, Vector(job.count(), 1000));
      if (!writes) lose();
      ASSERT_EQ(job.result(0), remembered) << moment;
      for (const uint32_t agent : {0, 1}) job.keep(agent, PsRequest::kWrite, 1, values);
      if (writes) lose();
      EXPECT_EQ(job.result(0), job.result(1)) << moment;
      ASSERT_EQ(job.train(3, 5), wanted) << moment;
    }
  }
}

constexpr KeptCase kCases[] = {
    {"ps:async,lr=0.1,momentum=0.9", "fp16"},
    {"ps:async,lr=0.1,optimizer=adam", "onebit", 1, true},
    {"ps:ssp,lr=0.1,optimizer=adagrad", "int8:ef=residual", 3},
    {"ps:quorum,q=1,lr=0.1,momentum=0.9,nesterov=1", "topk:ratio=0.1"},
    {"ps:async,lr=0.1,momentum=0.9", "onebit", 3, true, true},
};
constexpr KeptCase kCasesWithCopies[] = {
    {"ps:async,lr=0.1,optimizer=adam,replicas=2", "topk:ratio=0.1", 3},
    {"ps:quorum,q=1,lr=0.1,optimizer=adamw,replicas=2", "onebit", 2, true},
    {"ps:quorum,q=1,lr=0.1,momentum=0.9,replicas=2", "fp16", 3, true},
};
INSTANTIATE_TEST_SUITE_P(Codecs, KeptOf, testing::ValuesIn(kCases));
INSTANTIATE_TEST_SUITE_P(CodecsWithCopies, KeptOf, testing::ValuesIn(kCasesWithCopies));
INSTANTIATE_TEST_SUITE_P(CodecsWithCopies, KeptTwice, testing::ValuesIn(kCasesWithCopies));

}  // namespace
}  // namespace gradbus
