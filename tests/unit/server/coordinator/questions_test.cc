// Questions of ranks: who may ask, and that each question gets one answer.
#include <gmock/gmock.h>

#include "tests/unit/server/coordinator/cluster.h"

namespace gradbus {
namespace {

using test::Cluster;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class Questions : public testing::Test {
 protected:
  void ask(uint64_t agent, uint64_t job, uint32_t rank, uint64_t request,
           const std::string& text = "{}") {
    v1::AgentMessage message;
    message.mutable_job_question()->set_job_id(job);
    message.mutable_job_question()->set_rank(rank);
    message.mutable_job_question()->set_request(request);
    message.mutable_job_question()->set_text(text);
    cluster.clear();
    cluster.send(agent, message);
  }
  std::string refusal(uint64_t agent) {
    EXPECT_THAT(cluster.inbox[agent], SizeIs(1));
    return cluster.last(agent).job_answer().error().message();
  }

  Cluster cluster;
};

// Expect: the question waits outside of the coordinator, and the answer goes to the one who asked.
TEST_F(Questions, AreHandedOutAndAnswered) {
  const uint64_t job = cluster.start_job("train", 2);
  ask(2, job, 1, 7, "what?");
  EXPECT_THAT(cluster.inbox[2], IsEmpty());
  const std::vector<Question> taken = cluster.coordinator.take_questions();
  ASSERT_THAT(taken, SizeIs(1));
  EXPECT_EQ(taken[0].text, "what?");

  ask(1, job, 0, 8);
  EXPECT_THAT(refusal(1), HasSubstr("GB-O905"));
  EXPECT_THAT(cluster.coordinator.take_questions(), IsEmpty());

  cluster.clear();
  cluster.coordinator.answered(taken[0], std::string("this"));
  cluster.collect();
  EXPECT_EQ(cluster.last(2).job_answer().text(), "this");
  EXPECT_EQ(cluster.last(2).job_answer().request(), 7u);

  ask(1, job, 0, 9);
  EXPECT_THAT(cluster.coordinator.take_questions(), SizeIs(1));
}

// Expect: an answer at once, and nothing to work on.
TEST_F(Questions, OfStrangersAndOfTooManyWordsAreRefused) {
  const uint64_t job = cluster.start_job("train", 2);
  ask(1, job, 1, 1);  // rank 1 is on agent 2
  EXPECT_THAT(refusal(1), HasSubstr("GB-D602"));
  ask(1, job + 1, 0, 2);
  EXPECT_THAT(refusal(1), HasSubstr("GB-D602"));
  ask(1, job, 0, 3, std::string(kQuestionBytesMax + 1, ' '));
  EXPECT_THAT(refusal(1), HasSubstr("GB-A304"));
  EXPECT_THAT(cluster.coordinator.take_questions(), IsEmpty());
}

// Expect: the next job of this agent is not affected.
TEST_F(Questions, MayOutliveTheirJob) {
  const uint64_t job = cluster.start_job("train", 2);
  ask(1, job, 0, 1);
  const std::vector<Question> taken = cluster.coordinator.take_questions();
  ASSERT_THAT(taken, SizeIs(1));
  EXPECT_TRUE(cluster.coordinator.waits_for(taken[0]));
  cluster.drop(1);
  EXPECT_FALSE(cluster.coordinator.waits_for(taken[0]));
  cluster.coordinator.answered(taken[0], std::string("late"));
  cluster.collect();
}

// Expect: the status shows the ranks' reason; the newest measurement of any agent is the answer.
TEST_F(Questions, AboutTensorsAreAnsweredAtOnce) {
  const uint64_t job = cluster.start_job("train", 2);
  cluster.register_tensors(1, job, 0, {test::make_spec("grad", 100)});
  cluster.register_tensors(2, job, 1, {test::make_spec("grad", 100)});
  ask(1, job, 0, 1, R"({"want": "explain", "why": {"grad": "int8 is faster", "other": "?"}})");
  EXPECT_EQ(cluster.last(1).job_answer().text(), "{}");
  EXPECT_THAT(cluster.status().jobs(0).plans(0).why(), HasSubstr("; int8 is faster"));
  ask(1, job, 0, 2, R"({"want": "fidelity", "tensors": ["grad"]})");
  EXPECT_EQ(cluster.last(1).job_answer().text(), R"({"fidelity":{}})");
  for (const uint64_t round : {100, 200}) {
    v1::AgentMessage message;
    v1::JobCounters& counters = *message.mutable_heartbeat()->add_jobs();
    counters.set_job_id(job);
    v1::Fidelity& measured = *counters.add_fidelity();
    measured.set_tensor("grad");
    measured.set_round(round);
    measured.set_cosine(50.0 / double(round));
    cluster.send(round / 100, message);
  }
  ask(1, job, 0, 2, R"({"want": "fidelity", "tensors": ["grad"]})");
  EXPECT_EQ(cluster.last(1).job_answer().text(),
            R"({"fidelity":{"grad":{"cosine":0.25,"round":200}}})");
  for (const char* wrong : {R"({"want": "explain")", R"({"want": "explain", "why": []})",
                            R"({"want": "fidelity", "tensors": [1]})"}) {
    ask(1, job, 0, 3, wrong);
    EXPECT_THAT(refusal(1), HasSubstr("GB-F102"));
  }
  EXPECT_THAT(cluster.coordinator.take_questions(), IsEmpty());
}

// Expect: tensors that are registered later have chunks of this size, and 0 undoes it.
TEST_F(Questions, SetTheSizeOfChunks) {
  const uint64_t job = cluster.start_job("train", 2);
  const auto chunk_of = [&](const std::string& name, const std::string& bytes) {
    ask(1, job, 0, 1, R"({"want": "chunks", "bytes": )" + bytes + "}");
    const std::string answer = cluster.last(1).job_answer().text();
    for (const uint64_t agent : {1, 2})
      cluster.register_tensors(agent, job, uint32_t(agent - 1), {test::make_spec(name, 4 << 20)});
    const uint64_t elements = cluster.last(1).tensors_ready().tensors(0).chunk_elements();
    EXPECT_EQ(answer, R"({"bytes":)" + std::to_string(elements * 4) + "}") << name;
    return elements * 4;
  };
  EXPECT_EQ(chunk_of("a", "65536"), 65536u);
  EXPECT_EQ(chunk_of("b", "1048576"), 1048576u);
  EXPECT_EQ(chunk_of("c", "0"), chunk_bytes_for(kTcpPath));
  for (const char* wrong : {"1", "1048577", "-1", "\"64K\""}) {
    ask(1, job, 0, 1, std::string(R"({"want": "chunks", "bytes": )") + wrong + "}");
    EXPECT_THAT(refusal(1), HasSubstr("GB-F102"));
  }
}

// Expect: 64 jobs wait, the next one is told so, and an answer makes room.
TEST_F(Questions, OfManyJobsAreLimited) {
  std::vector<Question> taken;
  for (int i = 0; i <= 64; ++i) {
    const uint64_t job = cluster.start_job("train-" + std::to_string(i), 2);
    ask(1, job, 0, 1);
    for (Question& question : cluster.coordinator.take_questions())
      taken.push_back(std::move(question));
  }
  EXPECT_THAT(taken, SizeIs(64));
  EXPECT_THAT(refusal(1), HasSubstr("GB-A304"));
  cluster.coordinator.answered(taken[0], std::string("this"));
  cluster.collect();
  const uint64_t job = cluster.start_job("next", 2);
  ask(1, job, 0, 1);
  EXPECT_THAT(cluster.coordinator.take_questions(), SizeIs(1));
}

TEST(DeterministicQuestions, AreRefused) {
  CoordinatorOptions options;
  options.plan.deterministic = true;
  Cluster cluster(options);
  const uint64_t job = cluster.start_job("train", 2);
  v1::AgentMessage message;
  message.mutable_job_question()->set_job_id(job);
  cluster.send(1, message);
  EXPECT_THAT(cluster.last(1).job_answer().error().message(), HasSubstr("--deterministic"));
}

}  // namespace
}  // namespace gradbus
