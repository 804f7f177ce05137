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
  cluster.drop(1);
  cluster.coordinator.answered(taken[0], std::string("late"));
  cluster.collect();
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
