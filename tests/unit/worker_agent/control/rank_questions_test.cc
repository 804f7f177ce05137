// Questions of ranks: parts, one at a time, and one answer for each.
#include "worker_agent/control/rank_questions.h"

#include <gmock/gmock.h>

#include "proto/control.h"
#include "tests/unit/worker_agent/control/fake_node.h"

namespace gradbus {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class RankQuestionsTest : public test::FakeNode {
 protected:
  RankQuestionsTest() { welcome(); }
  Status part(AttachedClient& client, uint32_t request, const std::string& text, size_t total) {
    auto packet = make_packet<QuestionPacket>(request);
    packet.total_bytes = static_cast<uint32_t>(total);
    packet.bytes = static_cast<uint32_t>(text.size());
    text.copy(packet.text, text.size());
    return questions_.take(client, packet);
  }
  static v1::JobAnswer answer(uint32_t rank, uint64_t request, const std::string& text) {
    v1::JobAnswer message;
    message.set_job_id(test::kJob);
    message.set_rank(rank);
    message.set_request(request);
    message.set_text(text);
    return message;
  }
  // The text of all parts of an answer.
  std::string read_answer(size_t index) {
    std::string text;
    while (const auto packet = process(index).read<AnswerPacket>()) {
      text.append(packet->text, packet->bytes);
      if (text.size() == packet->total_bytes) return text;
    }
    return text + "...";
  }

  RankQuestions questions_{connection_};
};

TEST_F(RankQuestionsTest, PassesOnWholeQuestionsAndAnswers) {
  AttachedClient& client = attach_running(1);
  ASSERT_TRUE(part(client, 5, "what ", 8).ok());
  EXPECT_THAT(coordinator_.sent, IsEmpty());
  ASSERT_TRUE(part(client, 5, "now", 8).ok());
  ASSERT_THAT(coordinator_.sent, SizeIs(1));
  EXPECT_EQ(coordinator_.sent[0].job_question().text(), "what now");
  EXPECT_EQ(coordinator_.sent[0].job_question().rank(), 1u);
  questions_.answered(answer(0, 5, "not for it"));
  questions_.answered(answer(1, 4, "too late"));
  EXPECT_TRUE(process(0).quiet());
  const std::string text(2 * kTextPartBytes + 1, 'a');
  questions_.answered(answer(1, 5, text));
  EXPECT_EQ(read_answer(0), text);
  questions_.answered(answer(1, 5, text));  // again
  EXPECT_TRUE(process(0).quiet());
}

TEST_F(RankQuestionsTest, AllowsOneAtATime) {
  AttachedClient& client = attach_running(0);
  ASSERT_TRUE(part(client, 1, "gi", 8).ok());  // the rank gives it up
  ASSERT_TRUE(part(client, 2, "what", 4).ok());
  EXPECT_THAT(coordinator_.take(), SizeIs(1));
  ASSERT_TRUE(part(client, 3, "and", 3).ok());
  EXPECT_THAT(read_answer(0), HasSubstr("GB-O905"));
  EXPECT_THAT(coordinator_.sent, IsEmpty());
  questions_.answered(answer(0, 2, "that"));
  EXPECT_EQ(read_answer(0), "that");
  ASSERT_TRUE(part(client, 3, "and", 3).ok());
  EXPECT_THAT(coordinator_.sent, SizeIs(1));
}

TEST_F(RankQuestionsTest, RefusesPartsThatDoNotFit) {
  EXPECT_EQ(part(attach_running(0), 0, "x", 1).code(), Code::kCorrupt);
  EXPECT_EQ(part(attach_running(1), 1, "", 1).code(), Code::kCorrupt);
  EXPECT_EQ(part(attach_running(2), 1, "xyz", 2).code(), Code::kCorrupt);
  EXPECT_EQ(part(attach_running(3), 1, "x", kQuestionBytesMax + 1).code(), Code::kCorrupt);
  AttachedClient& client = attach_running(4);
  ASSERT_TRUE(part(client, 1, "x", 3).ok());
  EXPECT_EQ(part(client, 1, "y", 4).code(), Code::kCorrupt);  // another length
}

TEST_F(RankQuestionsTest, EndWithTheCoordinator) {
  AttachedClient& waits = attach_running(0);
  AttachedClient& half = attach_running(1);
  AttachedClient& gone = attach_running(2);
  ASSERT_TRUE(part(waits, 1, "what", 4).ok());
  ASSERT_TRUE(part(half, 1, "wh", 4).ok());
  ASSERT_TRUE(part(gone, 1, "what", 4).ok());
  questions_.forget(gone);
  connection_.ended("closed", test::kStart);
  questions_.end_all(connection_.gone());
  EXPECT_THAT(read_answer(0), HasSubstr("GB-C501"));
  EXPECT_TRUE(process(1).quiet());
  EXPECT_TRUE(process(2).quiet());
  ASSERT_TRUE(part(half, 1, "at", 4).ok());  // now it is whole
  EXPECT_THAT(read_answer(1), HasSubstr("GB-C501"));
}

}  // namespace
}  // namespace gradbus
