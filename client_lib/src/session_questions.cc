// Questions of this rank to the coordinator, through the agent.
#include <algorithm>

#include "client_lib/src/session.h"
#include "common/errors.h"

namespace gradbus {
namespace {

constexpr Nanos kAnswerSleep = 1 * kMillisecond;

}  // namespace

Result<std::string> Session::ask_coordinator(std::string_view question) {
  if (question.empty() || question.size() > kAttachTextsBytesMax)
    return error("O900", "a question has " + std::to_string(question.size()) + " bytes",
                 "ask with 1 to " + std::to_string(kAttachTextsBytesMax) + " bytes");
  const auto answer = std::make_shared<CoordinatorAnswer>();
  {
    const std::lock_guard lock(control_);
    if (!connection_)
      return error("O900", "a job of one rank has no coordinator to ask",
                   "run it with several ranks");
    if (answer_ != nullptr)
      return error("O905", "this rank has asked the coordinator, and waits for the answer",
                   "ask one question at a time");
    answer->request = next_request_++;
    for (size_t begin = 0; begin < question.size(); begin += kTextPartBytes) {
      auto packet = make_packet<QuestionPacket>(answer->request);
      packet.total_bytes = static_cast<uint32_t>(question.size());
      packet.bytes = static_cast<uint32_t>(std::min(kTextPartBytes, question.size() - begin));
      std::copy_n(question.data() + begin, packet.bytes, packet.text);
      GRADBUS_RETURN_IF_ERROR(connection_->send(&packet, sizeof(packet)));
    }
    answer_ = answer;
  }
  const Status waited = wait_for_answer(*answer);
  {
    // A later question is not refused because of this one, and its late answer is not taken.
    const std::lock_guard lock(control_);
    if (answer_ == answer) answer_.reset();
  }
  GRADBUS_RETURN_IF_ERROR(waited);
  if (!answer->refused.ok()) return answer->refused;
  return answer->text;
}

Status Session::wait_for_answer(const CoordinatorAnswer& answer) {
  const Nanos deadline = monotonic_now() + options_.agent_timeout;
  while (!answer.done.load(std::memory_order_acquire)) {
    progress();
    if (answer.done.load(std::memory_order_acquire)) break;
    GRADBUS_RETURN_IF_ERROR(failure());
    if (monotonic_now() >= deadline)
      return error("P110", "rank " + std::to_string(rank()) + " waited " +
                               std::to_string(options_.agent_timeout / kSecond) +
                               " s for an answer of the coordinator");
    connection_->wait(kAnswerSleep);
  }
  return {};
}

Status Session::take_answer(Packet& packet) {
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

}  // namespace gradbus
