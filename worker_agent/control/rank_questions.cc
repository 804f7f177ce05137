#include "worker_agent/control/rank_questions.h"

#include <algorithm>

#include "common/errors.h"
#include "data_plane/coordinator_plans.h"
#include "proto/control.h"

namespace gradbus {
namespace {

static_assert(kAttachTextsBytesMax == kQuestionBytesMax);

void send_answer(AttachedClient& client, uint32_t request, const Status& status,
                 const std::string& text) {
  const std::string& whole = status.ok() ? text : status.message();
  const size_t total =
      std::min(whole.size(), status.ok() ? kQuestionBytesMax : size_t{kTextPartBytes});
  size_t begin = 0;
  do {
    auto packet = make_packet<AnswerPacket>(request);
    packet.code = static_cast<uint32_t>(status.code());
    packet.total_bytes = static_cast<uint32_t>(total);
    packet.bytes = static_cast<uint32_t>(std::min(kTextPartBytes, total - begin));
    std::copy_n(whole.data() + begin, packet.bytes, packet.text);
    client.send(packet);
    begin += packet.bytes;
  } while (begin < total);
}

}  // namespace

Status RankQuestions::take(AttachedClient& client, const QuestionPacket& part) {
  Question& asked = questions_[&client];
  if (asked.whole()) {
    send_answer(client, part.header.request,
                error("O905", "the coordinator has not answered this rank's last question yet",
                      "ask again later"),
                "");
    return {};
  }
  if (asked.request != part.header.request) asked = {part.header.request, part.total_bytes};
  const bool fits = part.header.request == asked.request && asked.request != 0 &&
                    part.total_bytes == asked.total_bytes &&
                    part.total_bytes <= kQuestionBytesMax && part.bytes <= kTextPartBytes &&
                    part.bytes > 0 && asked.text.size() + part.bytes <= asked.total_bytes;
  if (!fits) return bad_packet("a part of a question does not fit the others");
  asked.text.append(part.text, part.bytes);
  if (!asked.whole()) return {};
  coordinator_.connected() ? pass_on(client, asked)
                           : answer(client, coordinator_.why_not_connected(), "");
  return {};
}

void RankQuestions::pass_on(AttachedClient& client, const Question& question) {
  v1::AgentMessage message;
  v1::JobQuestion& passed = *message.mutable_job_question();
  passed.set_job_id(client.job_id);
  passed.set_rank(client.rank);
  passed.set_request(question.request);
  passed.set_text(question.text);
  coordinator_.send(message);
}

void RankQuestions::answered(const v1::JobAnswer& message) {
  for (const auto& [client, asked] : questions_) {
    if (client->state != AttachedClient::State::kRunning || client->job_id != message.job_id() ||
        client->rank != message.rank() || asked.request != message.request())
      continue;
    const Status status = message.error().code() == 0 ? Status() : status_from(message.error());
    return answer(*client, status, message.text());
  }
}

void RankQuestions::answer(AttachedClient& client, const Status& status, const std::string& text) {
  const auto asked = questions_.extract(&client);
  send_answer(client, asked.mapped().request, status, text);
}

void RankQuestions::end_all(const Status& why) {
  for (auto next = questions_.begin(); next != questions_.end();) {
    const auto current = next++;
    if (current->first->state == AttachedClient::State::kRunning && current->second.whole())
      answer(*current->first, why, "");
  }
}

}  // namespace gradbus
