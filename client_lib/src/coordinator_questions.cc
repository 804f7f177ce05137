#include "client_lib/src/coordinator_questions.h"

#include <algorithm>

#include "client_lib/src/session.h"
#include "common/errors.h"

namespace gradbus {
namespace {

constexpr Nanos kAnswerSleep = 1 * kMillisecond;

}  // namespace

Result<std::shared_ptr<CoordinatorAnswer>> CoordinatorQuestions::ask(std::string_view question) {
  if (question.empty() || question.size() > kAttachTextsBytesMax)
    return error("O900", "a question has " + std::to_string(question.size()) + " bytes",
                 "ask with 1 to " + std::to_string(kAttachTextsBytesMax) + " bytes");
  const std::lock_guard lock(socket_.lock());
  if (!socket_.is_open())
    return error("O900", "a job of one rank has no coordinator to ask",
                 "run it with several ranks");
  if (answer_ != nullptr)
    return error("O905", "this rank has asked the coordinator, and waits for the answer",
                 "ask one question at a time");
  const auto answer = std::make_shared<CoordinatorAnswer>();
  answer->request = socket_.next_request();
  for (size_t begin = 0; begin < question.size(); begin += kTextPartBytes) {
    auto packet = make_packet<QuestionPacket>(answer->request);
    packet.total_bytes = static_cast<uint32_t>(question.size());
    packet.bytes = static_cast<uint32_t>(std::min(kTextPartBytes, question.size() - begin));
    std::copy_n(question.data() + begin, packet.bytes, packet.text);
    GRADBUS_RETURN_IF_ERROR(socket_.send(packet));
  }
  answer_ = answer;
  return answer;
}

void CoordinatorQuestions::give_up(const std::shared_ptr<CoordinatorAnswer>& answer) {
  const std::lock_guard lock(socket_.lock());
  if (answer_ == answer) answer_.reset();
}

Status CoordinatorQuestions::take(const Packet& packet) {
  const Result<AnswerPacket> received = packet.as<AnswerPacket>();
  if (!received.ok()) return received.status();
  const AnswerPacket& part = received.value();
  if (answer_ == nullptr || answer_->request != part.header.request) return {};
  if (part.bytes > kTextPartBytes || part.total_bytes > kAttachTextsBytesMax ||
      answer_->text.size() + part.bytes > part.total_bytes)
    return bad_packet("a part of an answer does not fit the others");
  answer_->text.append(part.text, part.bytes);
  if (answer_->text.size() < part.total_bytes) return {};
  if (part.code != 0) answer_->refused = Status(static_cast<Code>(part.code), answer_->text);
  answer_->done.store(true, std::memory_order_release);
  answer_.reset();
  return {};
}

Result<std::string> ask_coordinator(Session& session, std::string_view question) {
  const Result<std::shared_ptr<CoordinatorAnswer>> asked = session.questions().ask(question);
  if (!asked.ok()) return asked.status();
  CoordinatorAnswer& answer = *asked.value();
  const Status waited = session.waits().until_stored(answer.done, session.options().agent_timeout,
                                                     kAnswerSleep, "an answer of the coordinator");
  session.questions().give_up(asked.value());
  GRADBUS_RETURN_IF_ERROR(waited);
  if (!answer.refused.ok()) return answer.refused;
  return answer.text;
}

}  // namespace gradbus
