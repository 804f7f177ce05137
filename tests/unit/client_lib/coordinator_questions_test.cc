// Questions to the coordinator: parts, and that late answers go nowhere.
#include "client_lib/src/coordinator_questions.h"

#include <gmock/gmock.h>

#include "tests/unit/client_lib/fake_agent.h"

namespace gradbus {
namespace {

using test::as_packet;
using test::FakeAgent;
using testing::HasSubstr;

class CoordinatorQuestionsTest : public testing::Test {
 protected:
  CoordinatorQuestionsTest() { socket_.open(agent_.connection()); }
  std::string read_question(uint32_t request) {
    std::string text;
    while (const auto part = agent_.read<QuestionPacket>()) {
      EXPECT_EQ(part->header.request, request);
      text.append(part->text, part->bytes);
      if (text.size() == part->total_bytes) return text;
    }
    return text + "...";
  }
  Status answer(uint32_t request, const std::string& text, size_t total, Code code = Code::kOk) {
    auto packet = make_packet<AnswerPacket>(request);
    packet.code = static_cast<uint32_t>(code);
    packet.total_bytes = static_cast<uint32_t>(total);
    packet.bytes = static_cast<uint32_t>(text.size());
    text.copy(packet.text, sizeof(packet.text));
    return questions_.take(as_packet(packet));
  }

  FakeAgent agent_;
  AgentSocket socket_{kSecond};
  CoordinatorQuestions questions_{socket_};
};

TEST_F(CoordinatorQuestionsTest, GoAndComeInParts) {
  const std::string question(kTextPartBytes + 1, 'q');
  const auto asked = questions_.ask(question);
  ASSERT_TRUE(asked.ok());
  EXPECT_EQ(read_question(asked.value()->request), question);
  ASSERT_TRUE(answer(asked.value()->request, "that ", 8).ok());
  EXPECT_FALSE(asked.value()->done.load());
  ASSERT_TRUE(answer(asked.value()->request, "way", 8).ok());
  EXPECT_TRUE(asked.value()->done.load());
  EXPECT_EQ(asked.value()->text, "that way");
  EXPECT_TRUE(asked.value()->refused.ok());
  EXPECT_TRUE(questions_.ask("next").ok());
}

TEST_F(CoordinatorQuestionsTest, AreRefused) {
  const auto asked = questions_.ask("why");
  ASSERT_TRUE(answer(asked.value()->request, "GB-O905 busy", 12, Code::kBusy).ok());
  EXPECT_EQ(asked.value()->refused.code(), Code::kBusy);
  EXPECT_EQ(asked.value()->refused.message(), "GB-O905 busy");
}

TEST_F(CoordinatorQuestionsTest, AreAskedOneAtATime) {
  EXPECT_THAT(questions_.ask("").status().message(), HasSubstr("GB-O900"));
  const auto first = questions_.ask("first");
  EXPECT_THAT(questions_.ask("second").status().message(), HasSubstr("GB-O905"));
  questions_.give_up(first.value());
  const auto second = questions_.ask("second");
  ASSERT_TRUE(second.ok());
  questions_.give_up(first.value());  // again: the second one still waits
  ASSERT_TRUE(answer(first.value()->request, "late", 4).ok());
  EXPECT_FALSE(second.value()->done.load());
  ASSERT_TRUE(answer(second.value()->request, "yes", 3).ok());
  EXPECT_EQ(second.value()->text, "yes");
}

TEST_F(CoordinatorQuestionsTest, RefuseAnswersThatDoNotFit) {
  const auto asked = questions_.ask("why");
  EXPECT_EQ(answer(asked.value()->request, "abc", 2).code(), Code::kCorrupt);
  EXPECT_EQ(answer(asked.value()->request, "a", kAttachTextsBytesMax + 1).code(), Code::kCorrupt);
}

TEST(CoordinatorQuestionsAlone, HaveNobodyToAsk) {
  AgentSocket socket(kSecond);
  CoordinatorQuestions questions(socket);
  EXPECT_THAT(questions.ask("why").status().message(), HasSubstr("no coordinator to ask"));
}

}  // namespace
}  // namespace gradbus
