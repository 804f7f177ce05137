// Tests of shards with a copy of every chunk (mode option replicas=2): promotion of a copy, and
// jobs that lose a shard at any moment. Values are small integers in f32 and rates are 1. So a sum
// shows whether each push was counted exactly once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "proto/placement.h"
#include "tests/unit/data_plane/engine_cluster.h"
#include "transport/faulty/faulty.h"

namespace gradbus {
namespace {

using test::Cluster;
using test::kJob;
using test::Layout;
using testing::Each;
using testing::HasSubstr;

constexpr uint64_t kChunk = 64;
constexpr uint64_t kCount = 400;  // 7 chunks

TensorSpec spec_of(ReduceOp op, uint64_t count = kCount) {
  TensorSpec spec;
  spec.name = "t";
  spec.count = count;
  spec.op = op;
  return spec;
}

// ---- a copy

// A tensor on its shard and its copy. Both get the same pushes in the same order.
class BackupReplica : public testing::Test {
 protected:
  static constexpr uint32_t kAgents = 3;

  void open(const std::string& mode) {
    plan_.collective.count = kCount;
    plan_.collective.chunk_elements = kChunk;
    plan_.collective.agents = kAgents;
    plan_.collective.shards = 2;
    plan_.name = "t";
    plan_.mode = parse_mode(mode).take();
    plan_.ranks.assign(kAgents, 1);
    first_ = make_shard_tensor(plan_, *transport_).take();
    copy_ = make_shard_tensor(plan_, *transport_).take();
    copy_->begin_as_backup();
  }

  static FrameHeader header(uint64_t round, uint32_t chunk) {
    FrameHeader push;
    push.kind = static_cast<uint8_t>(FrameKind::kReduce);
    push.dtype = static_cast<uint8_t>(DType::kF32);
    push.op = static_cast<uint8_t>(ReduceOp::kSum);
    push.collective = static_cast<uint8_t>(CollectiveKind::kAllReduce);
    push.step = round;
    push.chunk = chunk;
    push.length = static_cast<uint32_t>(std::min(kChunk, kCount - chunk * kChunk) * sizeof(float));
    push.total = kCount;
    return push;
  }

  // Both get the push; an answer of the shard is sent at once.
  void push(uint32_t agent, uint64_t round, uint32_t chunk, float value) {
    const FrameHeader push = header(round, chunk);
    const std::vector<float> values(push.length / sizeof(float), value);
    for (ShardTensor* tensor : {first_.get(), copy_.get()}) {
      std::vector<ShardAnswer> answers;
      ASSERT_TRUE(tensor->on_push(agent, push, std::as_bytes(std::span(values)), 1, answers).ok());
      for (const ShardAnswer& answer : answers) {
        EXPECT_EQ(tensor->reaches(answer.agent, answer.chunk), tensor == first_.get());
        tensor->on_sent(answer);
        if (tensor == first_.get()) answered_[{answer.agent, answer.chunk}] = answer.round;
      }
    }
  }

  // A push of several frames, which arrive at both in different orders.
  void push_whole(uint32_t agent, uint64_t round, const std::vector<float>& values,
                  std::mt19937& random) {
    std::vector<uint32_t> frames((kCount + kChunk - 1) / kChunk);
    std::iota(frames.begin(), frames.end(), 0);
    for (ShardTensor* tensor : {first_.get(), copy_.get()}) {
      std::ranges::shuffle(frames, random);
      for (const uint32_t frame : frames) {
        EXPECT_FALSE(tensor->has_taken(agent, header(round, frame)));
        std::vector<ShardAnswer> answers;
        ASSERT_TRUE(push_frame(*tensor, agent, round, frame, values, answers).ok());
        for (const ShardAnswer& answer : answers) {
          tensor->on_sent(answer);
          if (tensor == first_.get()) answered_[{answer.agent, 0}] = answer.round;
        }
      }
      EXPECT_TRUE(tensor->has_taken(agent, header(round, 0)));
    }
  }
  Status push_frame(ShardTensor& tensor, uint32_t agent, uint64_t round, uint32_t frame,
                    const std::vector<float>& values, std::vector<ShardAnswer>& answers) {
    const FrameHeader push = header(round, frame);
    const auto bytes = std::as_bytes(std::span(values)).subspan(frame * kChunk * sizeof(float));
    return tensor.on_push(agent, push, bytes.first(push.length), 1, answers);
  }

  std::vector<float> parameters(const ShardTensor& tensor, uint32_t chunk) {
    SnapshotPiece piece;
    std::vector<float> values;
    EXPECT_TRUE(tensor.save(chunk, piece, values));
    values.push_back(static_cast<float>(piece.steps));
    return values;
  }

  const std::unique_ptr<Transport> transport_ = test::loopback();
  ShardPlan plan_;
  std::unique_ptr<ShardTensor> first_, copy_;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> answered_;  // round by agent and chunk
};

// Expect: the copy has the same bits, also of the optimizer state, wherever agents wait for others.
TEST_F(BackupReplica, HasTheBitsOfWhatItCopies) {
  for (const char* mode : {"ps:async,optimizer=adam,lr=0.1", "ps:ssp,max_staleness=1,momentum=0.9",
                           "ps:quorum,q=2,optimizer=adagrad"}) {
    open(mode);
    answered_.clear();
    std::mt19937 random(7);
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> pushed;
    for (int i = 0; i < 600; ++i) {
      const auto agent = static_cast<uint32_t>(random() % kAgents);
      const uint32_t chunk = 2 * static_cast<uint32_t>(random() % 4);
      if (pushed[{agent, chunk}] != answered_[{agent, chunk}]) continue;
      const float value = static_cast<float>(random()) * 1e-9F - 2;
      push(agent, ++pushed[{agent, chunk}], chunk, value);
    }
    for (uint32_t chunk = 0; chunk < 8; chunk += 2)
      EXPECT_EQ(parameters(*first_, chunk), parameters(*copy_, chunk)) << mode << " " << chunk;
  }
}

// Expect: the same for pushes of several frames, in whatever order they arrive at both.
TEST_F(BackupReplica, HasTheBitsOfWholeTensors) {
  for (const char* mode :
       {"ps:async,optimizer=lamb,lr=0.1", "ps:ssp,max_staleness=1,optimizer=lamb,weight_decay=0.1",
        "ps:quorum,q=2,optimizer=lamb"}) {
    plan_.collective.one_shard = true;
    plan_.collective.tensor = 0;
    open(mode);
    answered_.clear();
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<uint64_t> pushed(kAgents);
    for (int i = 0; i < 200; ++i) {
      const auto agent = static_cast<uint32_t>(random() % kAgents);
      if (pushed[agent] != answered_[{agent, 0}]) continue;
      std::vector<float> values(kCount);
      for (float& value : values) value = normal(random);
      push_whole(agent, ++pushed[agent], values, random);
    }
    EXPECT_GT(first_->steps_of(0), 20u);
    EXPECT_EQ(parameters(*first_, 0), parameters(*copy_, 0)) << mode;
  }
}

// Expect: a push that was incomplete before the loss is forgotten. A push that was applied is
// answered when it has arrived again completely, because its agent accepts no answer before.
TEST_F(BackupReplica, TakesWholePushesAgain) {
  plan_.collective.one_shard = true;
  open("ps:async,optimizer=lamb,lr=0.5");
  std::mt19937 random(7);
  const uint32_t frames = (kCount + kChunk - 1) / kChunk;
  for (uint32_t agent = 0; agent < kAgents; ++agent)
    push_whole(agent, 1, std::vector<float>(kCount, 64), random);
  const std::vector<float> ones(kCount, 1);
  push_whole(1, 2, ones, random);
  std::vector<ShardAnswer> answers;
  ASSERT_TRUE(push_frame(*copy_, 0, 2, 3, ones, answers).ok());
  for (uint32_t frame = 0; frame < frames; ++frame) {
    EXPECT_TRUE(answers.empty());
    EXPECT_FALSE(copy_->reaches(1, 0));
    EXPECT_TRUE(copy_->fail_over(1, header(2, frame), answers).value()) << frame;
  }
  EXPECT_TRUE(copy_->reaches(1, 0));
  ASSERT_EQ(answers.size(), frames);
  EXPECT_EQ(answers[0].round, 2u);
  EXPECT_EQ(copy_->steps_of(0), 1u) << "counted twice";
  answers.clear();
  for (uint32_t frame = 0; frame < frames; ++frame) {
    if (!copy_->reaches(0, 0)) {
      EXPECT_FALSE(copy_->fail_over(0, header(2, frame), answers).value());
    }
    EXPECT_TRUE(push_frame(*copy_, 0, 2, frame, ones, answers).ok()) << frame;
  }
  EXPECT_EQ(answers.size(), frames);
  EXPECT_THAT(parameters(*copy_, 0)[0], testing::FloatNear(16, 1e-4));
}

// Expect: a push that the copy has applied is answered and changes nothing. A push that it has not
// applied can be applied. In both cases the agent gets answers afterwards.
TEST_F(BackupReplica, KnowsWhatItHasTaken) {
  open("ps:async,lr=1");
  for (uint32_t agent = 0; agent < kAgents; ++agent) push(agent, 1, 0, 100);
  push(1, 2, 0, 3);
  std::vector<ShardAnswer> answers;
  EXPECT_TRUE(copy_->fail_over(1, header(2, 0), answers).value());
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].round, 2u);
  EXPECT_EQ(answers[0].agent, 1u);
  EXPECT_EQ(parameters(*copy_, 0)[0], 97);
  answers.clear();
  EXPECT_FALSE(copy_->fail_over(0, header(2, 0), answers).value());
  EXPECT_TRUE(answers.empty());
  EXPECT_TRUE(copy_->reaches(0, 0));
  EXPECT_FALSE(copy_->reaches(0, 2)) << "each chunk on its own";
}

// Expect: a push that waits for others is answered when they have arrived, not before.
TEST_F(BackupReplica, AnswersWhenTheOthersAreThere) {
  open("ps:sync");
  push(0, 1, 0, 1);
  push(1, 1, 0, 2);
  std::vector<ShardAnswer> answers;
  EXPECT_TRUE(copy_->fail_over(0, header(1, 0), answers).value());
  EXPECT_TRUE(answers.empty());
  const std::vector<float> values(kChunk, 4);
  const auto bytes = std::as_bytes(std::span(values));
  EXPECT_FALSE(copy_->fail_over(2, header(1, 0), answers).value());
  ASSERT_TRUE(copy_->on_push(2, header(1, 0), bytes, 1, answers).ok());
  std::vector<uint32_t> reached;
  for (const ShardAnswer& answer : answers)
    if (copy_->reaches(answer.agent, 0)) reached.push_back(answer.agent);
  EXPECT_THAT(reached, testing::ElementsAre(0, 2));
}

// Expect: a payload that waits for others may arrive again, but not with another length, because
// the first one is stored.
TEST_F(BackupReplica, TakesPayloadsAgainAsTheyWere) {
  plan_.compression = {parse_compression("fp16").take(), Communicator::kPs, 2 * kChunk, 0};
  open("ps:sync");
  FrameHeader push = header(1, 0);
  push.dtype = static_cast<uint8_t>(DType::kU8);
  push.op = static_cast<uint8_t>(ReduceOp::kNone);
  push.collective = static_cast<uint8_t>(CollectiveKind::kGather);
  push.codec = static_cast<uint8_t>(CodecId::kFp16);
  push.source = std::bit_cast<uint32_t>(1.0F);
  const std::vector<float> gradient(2 * kChunk, 3);
  const auto codec = make_codec(plan_.compression.spec, {.count_max = gradient.size()});
  std::vector<std::byte> payload(codec->payload_bytes_max(gradient.size()));
  payload.resize(codec->encode({.gradient = gradient, .seed = 1, .round = 1}, payload));
  push.total = push.length = static_cast<uint32_t>(payload.size());
  std::vector<ShardAnswer> answers;
  const Status taken = copy_->on_push(0, push, payload, 1, answers);
  ASSERT_TRUE(taken.ok()) << taken.message();
  FrameHeader shorter = push;
  shorter.total = --shorter.length;
  const auto refused = copy_->fail_over(0, shorter, answers);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("total"));
  EXPECT_TRUE(copy_->fail_over(0, push, answers).value());
  EXPECT_TRUE(copy_->reaches(0, 0));
}

// ---- a job that loses a shard

std::unique_ptr<Transport> unreliable() {
  static uint64_t seed = 0;
  return make_faulty(test::loopback(),
                     {.seed = ++seed, .busy = 0.2, .delay = 0.3, .reorder = true});
}

struct Loss {
  const char* mode;
  uint32_t shards;
  bool faults;
  std::vector<uint16_t> pattern = {};  // empty: equal parts
  const char* codec = nullptr;         // codec of the payloads
  bool large = false;                  // whether payloads have several frames

  uint64_t count() const { return large ? 200'000 : kCount; }
  uint64_t chunk() const { return large ? 1 << 14 : kChunk; }
  CompressionPlan compression() const {
    return {parse_compression(codec).take(), Communicator::kPs, (large ? 10 : 2) * chunk(), 0};
  }
};

void PrintTo(const Loss& loss, std::ostream* out) {
  *out << loss.mode << " " << loss.shards << " shards" << (loss.faults ? " faults" : "")
       << (loss.pattern.empty() ? "" : " pattern");
  if (loss.codec != nullptr) *out << " " << loss.codec << (loss.large ? " large" : "");
}

class LostShard : public testing::TestWithParam<Loss> {
 protected:
  static constexpr uint32_t kAgents = 2;
  static constexpr uint64_t kSteps = 5;

  // A step of lamb with equal elements and constant gradients halves each element with lr=0.5.
  static float gradient(uint32_t agent, uint64_t step) {
    return lamb() ? 1 : static_cast<float>(agent * 10 + step);
  }
  static float start() { return lamb() ? 1024 : 0; }
  static bool lamb() { return std::string(GetParam().mode).find("lamb") != std::string::npos; }
  static float wanted() {
    const bool quorum = std::string(GetParam().mode).starts_with("ps:quorum");
    if (lamb()) return std::ldexp(1024.0F, -static_cast<int>(kSteps * (quorum ? 1 : kAgents)));
    float sum = 0;
    for (uint32_t agent = 0; agent < kAgents; ++agent)
      for (uint64_t step = 1; step <= kSteps; ++step) sum -= gradient(agent, step);
    return quorum ? sum / kAgents : sum;
  }

  void open() {
    Layout layout{.agents = kAgents, .ranks_per_agent = 2, .shards = GetParam().shards};
    if (GetParam().faults) layout.transport = unreliable;
    if (!GetParam().pattern.empty())
      layout.pattern = std::make_shared<const std::vector<uint16_t>>(GetParam().pattern);
    cluster_ = std::make_unique<Cluster>(layout);
    const Loss& loss = GetParam();
    const TensorSpec spec = spec_of(ReduceOp::kAverage, loss.count());
    if (loss.codec == nullptr) {
      cluster_->add_on_shards(0, spec, loss.chunk(), loss.mode);
    } else {
      cluster_->add_compressed(0, spec, loss.chunk(), Algorithm::kShards, loss.compression(),
                               loss.mode);
    }
    for (Worker& worker : workers_) worker = {};
  }
  bool sync() const { return std::string(GetParam().mode).starts_with("ps:sync"); }

  // Every agent with a result makes its next step; then each engine does one turn of work.
  void turn() {
    for (uint32_t agent = 0; agent < kAgents; ++agent) {
      Worker& worker = workers_[agent];
      CompletionRecord record;
      for (uint32_t local = 0; local < 2; ++local)
        while (cluster_->nodes[agent]->clients[local].completions.pop(record) == Pop::kRecord)
          ++worker.completions;
      if (worker.completions == 2 * worker.rounds && worker.rounds > 0) took(agent);
      if (worker.completions == 2 * worker.rounds && worker.rounds <= kSteps + 1) step(agent);
    }
    cluster_->turn(1);
  }

  // Round 1 sets the parameters; the last round pulls the result of all steps.
  void step(uint32_t agent) {
    Worker& worker = workers_[agent];
    const bool last = worker.rounds == kSteps + 1;
    if (last && !sync() && !everybody_made_its_steps()) return;
    if (last && sync()) return;
    const float value = worker.rounds == 0 ? start() : gradient(agent, worker.rounds);
    Submission record{};
    record.kind = static_cast<uint32_t>(SubmissionKind::kPosted);
    record.ps_request = last ? 1 : 0;
    ++worker.rounds;
    for (uint32_t local = 0; local < 2; ++local) {
      std::fill_n(cluster_->data(agent, local, 0), GetParam().count(), value);
      cluster_->post(agent, local, 0, worker.rounds, record);
    }
  }
  bool everybody_made_its_steps() const {
    return std::ranges::all_of(workers_, [](const Worker& worker) {
      return worker.rounds > kSteps && worker.completions == 2 * worker.rounds;
    });
  }
  // ps:sync: the result of each round is the mean of that round. With lamb, all parameters belong
  // to one step.
  void took(uint32_t agent) {
    Worker& worker = workers_[agent];
    if (lamb()) {
      ASSERT_TRUE(is_all(agent, 0, *cluster_->data(agent, 0, 0))) << worker.rounds;
    }
    if (!sync() || worker.rounds < 2 || worker.checked == worker.rounds) return;
    worker.checked = worker.rounds;
    const float wanted =
        (gradient(0, worker.rounds - 1) + gradient(1, worker.rounds - 1)) / kAgents;
    for (uint32_t local = 0; local < 2; ++local)
      ASSERT_TRUE(is_all(agent, local, wanted)) << "round " << worker.rounds;
  }
  // The same as Each(), in a hundredth of its time.
  testing::AssertionResult is_all(uint32_t agent, uint32_t local, float wanted, float near = 0) {
    const std::span values(cluster_->data(agent, local, 0), GetParam().count());
    for (size_t i = 0; i < values.size(); ++i)
      if (!(std::abs(values[i] - wanted) <= near))
        return testing::AssertionFailure()
               << "element " << i << " is " << values[i] << ", wanted " << wanted;
    return testing::AssertionSuccess();
  }
  bool done() const {
    return std::ranges::all_of(workers_, [&](const Worker& worker) {
      return worker.rounds == kSteps + (sync() ? 1 : 2) && worker.completions == 2 * worker.rounds;
    });
  }

  // Loses the shard after `moment` turns. The nodes detect the loss at different times.
  void run(uint32_t lost, int moment, std::mt19937& random) {
    open();
    for (int i = 0; i < moment; ++i) turn();
    cluster_->kill(kAgents + lost);
    std::vector<uint32_t> untold;
    for (uint32_t node = 0; node < kAgents + GetParam().shards; ++node)
      if (node != kAgents + lost) untold.push_back(node);
    std::ranges::shuffle(untold, random);
    for (const uint32_t node : untold) {
      for (uint64_t turns = random() % 12; turns > 0; --turns) turn();
      cluster_->nodes[node]->engine.post(LoseShard{kJob, lost});
    }
    for (const Nanos deadline = monotonic_now() + 60 * kSecond;
         !done() && monotonic_now() < deadline;)
      turn();
  }

  struct Worker {
    uint64_t rounds = 0;  // rounds posted
    uint64_t completions = 0;
    uint64_t checked = 0;
  };
  std::unique_ptr<Cluster> cluster_;
  std::array<Worker, kAgents> workers_;
};

// Expect: whichever shard is lost at whatever time, all steps are made, and each counts once.
TEST_P(LostShard, LosesNothing) {
  std::mt19937 random(11);
  for (int moment = 0; moment < 60; moment += 1 + moment / 16) {
    for (uint32_t lost = 0; lost < GetParam().shards; ++lost) {
      run(lost, GetParam().large ? 3 * moment : moment, random);
      ASSERT_TRUE(done()) << "shard " << lost << " at turn " << moment;
      for (auto& node : cluster_->nodes)
        for (const JobBroken& broken : node->broken.take())
          FAIL() << broken.status.message() << " at turn " << moment;
      for (uint32_t agent = 0; agent < kAgents && !sync(); ++agent)
        ASSERT_TRUE(is_all(agent, 0, wanted(), lamb() ? 1e-3F : 0))
            << "shard " << lost << " at turn " << moment;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Modes, LostShard,
    testing::Values(Loss{"ps:async,lr=1,replicas=2", 3, false},
                    Loss{"ps:async,lr=1,replicas=2", 2, true}, Loss{"ps:sync,replicas=2", 3, false},
                    Loss{"ps:sync,replicas=2", 2, true},
                    Loss{"ps:ssp,max_staleness=1,lr=1,replicas=2", 3, true},
                    Loss{"ps:quorum,q=2,lr=1,replicas=2", 3, false},
                    Loss{"ps:async,lr=1,replicas=2", 3, true, {2, 0, 2}},
                    Loss{"ps:sync,replicas=2", 3, false, {1, 1, 0, 1, 2}},
                    Loss{"ps:quorum,q=2,deadline_ms=60000,lr=1,replicas=2", 4, true},
                    Loss{"ps:async,optimizer=lamb,lr=0.5,replicas=2", 3, false},
                    Loss{"ps:async,optimizer=lamb,lr=0.5,replicas=2", 2, true},
                    Loss{"ps:ssp,max_staleness=1,optimizer=lamb,lr=0.5,replicas=2", 3, true},
                    Loss{"ps:quorum,q=2,optimizer=lamb,lr=0.5,replicas=2", 2, true},
                    // These codecs represent constants exactly in both directions.
                    Loss{"ps:async,lr=1,replicas=2", 3, false, {}, "onebit"},
                    Loss{"ps:async,lr=1,replicas=2", 2, true, {}, "fp16"},
                    Loss{"ps:async,lr=1,replicas=2", 2, true, {}, "fp16", true},
                    Loss{"ps:ssp,max_staleness=1,lr=1,replicas=2", 3, true, {}, "onebit"},
                    Loss{"ps:quorum,q=2,lr=1,replicas=2", 3, true, {}, "onebit"},
                    Loss{"ps:quorum,q=2,deadline_ms=60000,lr=1,replicas=2", 2, true, {}, "fp16"},
                    Loss{"ps:async,lr=1,replicas=2", 3, true, {2, 0, 2}, "onebit"},
                    Loss{"ps:sync,replicas=2", 3, false, {}, "onebit"},
                    Loss{"ps:sync,replicas=2", 2, true, {}, "onebit"},
                    Loss{"ps:sync,replicas=2", 2, true, {}, "fp16", true}));

// A job whose results depend on its gradients only: one agent, or sums over agents in their order.
// Returns the result of each step by step and agent. The shard is lost after a number of turns.
struct Coded {
  const char* mode;
  const char* codec;
  uint32_t agents;
};

std::vector<std::vector<float>> results_of(const Coded& coded, uint32_t lost, int moment) {
  constexpr uint64_t kRounds = 6;
  Layout layout{.agents = coded.agents, .shards = 2, .transport = unreliable};
  Cluster cluster(layout);
  const CompressionPlan plan{parse_compression(coded.codec).take(), Communicator::kPs, 2 * kChunk,
                             0};
  cluster.add_compressed(0, spec_of(ReduceOp::kAverage), kChunk, Algorithm::kShards, plan,
                         coded.mode);
  int turns = 0;
  const auto turn = [&] {
    if (turns++ == moment) {
      cluster.kill(coded.agents + lost);
      for (uint32_t node = 0; node < coded.agents + 2; ++node)
        if (node != coded.agents + lost) cluster.nodes[node]->engine.post(LoseShard{kJob, lost});
    }
    cluster.turn(1);
  };
  std::vector<std::vector<float>> results;
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (uint64_t round = 1; round <= kRounds; ++round) {
    for (uint32_t agent = 0; agent < coded.agents; ++agent) {
      for (uint64_t i = 0; i < kCount; ++i) cluster.data(agent, 0, 0)[i] = normal(random);
      cluster.post(agent, 0, 0, round);
    }
    for (uint32_t agent = 0; agent < coded.agents; ++agent) {
      CompletionRecord record;
      auto& completions = cluster.nodes[agent]->clients[0].completions;
      const Nanos deadline = monotonic_now() + 30 * kSecond;
      while (completions.pop(record) != Pop::kRecord && monotonic_now() < deadline) turn();
      const float* data = cluster.data(agent, 0, 0);
      results.emplace_back(data, data + kCount);
    }
  }
  for (auto& node : cluster.nodes)
    for (const JobBroken& broken : node->broken.take()) ADD_FAILURE() << broken.status.message();
  return results;
}

// Expect: each step ends with the bits of a job without loss, for all codecs: whatever they leave
// out, draw at random or keep.
TEST(LostShards, CodedStepsKeepTheirBits) {
  for (const Coded& coded :
       {Coded{"ps:async,optimizer=adam,lr=0.1,replicas=2", "topk:ratio=0.1", 1},
        Coded{"ps:async,momentum=0.9,replicas=2", "int8", 1},
        Coded{"ps:async,replicas=2", "onebit", 1}, Coded{"ps:sync,replicas=2", "onebit", 3},
        Coded{"ps:sync,replicas=2", "topk:ratio=0.1", 2}}) {
    const auto wanted = results_of(coded, 0, -1);
    for (int moment = 1; moment < 60; moment += 1 + moment / 8)
      for (const uint32_t lost : {0U, 1U})
        ASSERT_EQ(results_of(coded, lost, moment), wanted)
            << coded.mode << " " << coded.codec << " shard " << lost << " at turn " << moment;
  }
}

// Expect: the deadline closes a step on both shards, so a lost shard changes nothing. The copy then
// keeps the deadlines itself.
class Deadlines : public testing::TestWithParam<const char*> {};

TEST_P(Deadlines, AreCopied) {
  Cluster cluster({.agents = 2, .shards = 2});
  const char* mode = "ps:quorum,q=2,deadline_ms=20,lr=1,replicas=2";
  if (GetParam() == nullptr) {
    cluster.add_on_shards(0, spec_of(ReduceOp::kSum), kChunk, mode);
  } else {
    const CompressionPlan plan{parse_compression(GetParam()).take(), Communicator::kPs, 2 * kChunk,
                               0};
    cluster.add_compressed(0, spec_of(ReduceOp::kSum), kChunk, Algorithm::kShards, plan, mode);
  }
  uint64_t round = 0;
  const auto push = [&](uint32_t agent, uint64_t number, float value) {
    std::fill_n(cluster.data(agent, 0, 0), kCount, value);
    cluster.post(agent, 0, 0, number);
  };
  const auto result = [&](uint32_t agent) {
    EXPECT_EQ(cluster.completions(agent, 0, 1).size(), 1u);
    return std::vector<float>(cluster.data(agent, 0, 0), cluster.data(agent, 0, 0) + kCount);
  };
  ++round;
  push(0, round, 100);
  push(1, round, 0);
  EXPECT_THAT(result(0), Each(100.0F));
  EXPECT_THAT(result(1), Each(100.0F));
  push(1, ++round, 5);
  EXPECT_THAT(result(1), Each(95.0F));
  cluster.kill(2);
  for (const uint32_t node : {0, 1, 3}) cluster.nodes[node]->engine.post(LoseShard{kJob, 0});
  push(1, ++round, 7);
  EXPECT_THAT(result(1), Each(88.0F));
}

INSTANTIATE_TEST_SUITE_P(Codecs, Deadlines, testing::Values(nullptr, "fp16"));

// Expect: without copies, a lost link ends the job at once. With copies, it ends the job if the
// coordinator does not report the shard as lost within the deadline.
TEST(LostShards, ALinkThatEndsNeedsAWord) {
  for (const char* mode : {"ps:async", "ps:async,replicas=2"}) {
    Cluster cluster({.agents = 1, .shards = 2});
    cluster.add_on_shards(0, spec_of(ReduceOp::kSum), kChunk, mode);
    cluster.turn(50);
    const Nanos began = monotonic_now();
    cluster.kill(1);
    const auto broken = cluster.broken(0);
    ASSERT_EQ(broken.size(), 1u);
    EXPECT_THAT(broken[0].status.message(), HasSubstr("GB-P102 LINK_LOST"));
    EXPECT_THAT(broken[0].status.message(), HasSubstr("shard 0"));
    const bool copies = std::string(mode) != "ps:async";
    EXPECT_EQ(monotonic_now() - began >= kShardLossDeadline, copies);
  }
}

TEST(ArenaSlot, TheBackupIsAnotherShard) {
  for (uint32_t shards = 2; shards < 6; ++shards) {
    for (uint32_t shard = 0; shard < shards; ++shard) {
      EXPECT_NE(backup_of(shard, shards), shard);
      EXPECT_EQ(backed_up_by(backup_of(shard, shards), shards), shard);
    }
  }
}

}  // namespace
}  // namespace gradbus
