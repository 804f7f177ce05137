// Questions of ranks to the coordinator. The agent passes texts on and does not read them.
#include <algorithm>

#include "common/errors.h"
#include "proto/control.h"
#include "worker_agent/control/conductor.h"

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

// A rank that gave up a question may ask the next one. Only one at a time goes to the coordinator,
// so that a client cannot fill its inbox.
Status Conductor::on_question(AttachedClient& client, const QuestionPacket& packet) {
  AttachedClient::Asked& asked = client.asked;
  if (asked.request != 0 && asked.text.size() == asked.total_bytes) {
    send_answer(client, packet.header.request,
                error("O905", "the coordinator has not answered this rank's last question yet",
                      "ask again later"),
                "");
    rewatch(client);
    return {};
  }
  if (asked.request != packet.header.request)
    asked = {packet.header.request, packet.total_bytes, {}};
  const bool fits = packet.header.request == asked.request && asked.request != 0 &&
                    packet.total_bytes == asked.total_bytes &&
                    packet.total_bytes <= kQuestionBytesMax && packet.bytes <= kTextPartBytes &&
                    packet.bytes > 0 && asked.text.size() + packet.bytes <= asked.total_bytes;
  if (!fits) return bad_packet("a part of a question does not fit the others");
  asked.text.append(packet.text, packet.bytes);
  if (asked.text.size() < asked.total_bytes) return {};
  if (!connected_) {
    answer_question(client, no_coordinator(), "");
    return {};
  }
  v1::AgentMessage message;
  v1::JobQuestion& question = *message.mutable_job_question();
  question.set_job_id(client.job_id);
  question.set_rank(client.rank);
  question.set_request(asked.request);
  question.set_text(asked.text);
  send(message);
  return {};
}

void Conductor::on_job_answer(const v1::JobAnswer& answer) {
  for (auto& [fd, client] : clients_) {
    if (client->state != AttachedClient::State::kRunning || client->job_id != answer.job_id() ||
        client->rank != answer.rank() || client->asked.request != answer.request())
      continue;
    const Status status = answer.error().code() == 0 ? Status() : status_from(answer.error());
    return answer_question(*client, status, answer.text());
  }
}

void Conductor::answer_question(AttachedClient& client, const Status& status,
                                const std::string& text) {
  const uint32_t request = client.asked.request;
  client.asked = {};
  send_answer(client, request, status, text);
  rewatch(client);
}

// The coordinator is gone, and would not know the question if it came back.
void Conductor::end_questions(const Status& why) {
  for (auto& [fd, client] : clients_) {
    const AttachedClient::Asked& asked = client->asked;
    if (client->state == AttachedClient::State::kRunning && asked.request != 0 &&
        asked.text.size() == asked.total_bytes)
      answer_question(*client, why, "");
  }
}

}  // namespace gradbus
