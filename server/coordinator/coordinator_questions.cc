// Questions of ranks: for a plan of their steps, or for a point of a search.
#include "proto/control.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/questions/tensor_notes.h"

namespace gradbus {
namespace {

constexpr size_t kQuestionsMax = 64;  // of all jobs

}  // namespace

// The sender waits for an answer, so every refusal is one.
void Coordinator::job_question(uint64_t id, const v1::JobQuestion& message) {
  Question question{id, message.job_id(), message.rank(), message.request(), {}, 0};
  CoordinatorJob* const job = find_job(message.job_id());
  const bool known = job != nullptr && job->state() == CoordinatorJob::State::kRunning &&
                     job->membership().owns(id, message.rank());
  if (!checked(known, id, "JobQuestion"))
    return send_answer(question, short_error("D602", "the coordinator knows no such rank"));
  if (is_about_tensors(message.text()))
    return send_answer(question, answer_about_tensors(message.text(), *job));
  if (options_.plan.deterministic)
    return send_answer(question, short_error("F100",
                                             "plans depend on measured times, and the coordinator "
                                             "runs with --deterministic",
                                             "name a schedule that needs no plan"));
  if (message.text().size() > kQuestionBytesMax)
    return send_answer(
        question,
        short_error("A304", "a question has " + std::to_string(message.text().size()) + " bytes"));
  if (asking_.size() >= kQuestionsMax && !asking_.contains(message.job_id()))
    return send_answer(
        question,
        short_error("A304", std::to_string(kQuestionsMax) + " jobs wait for answers already",
                    "ask again later"));
  if (!asking_.insert(message.job_id()).second)
    return send_answer(question,
                       short_error("O905", "the job has asked, and waits for the answer"));
  question.text = message.text();
  question.uid = job->identity().owner.uid;
  outbox_.ask(std::move(question));
}

// An answer takes seconds. Other jobs must not wait for those of jobs that are over.
bool Coordinator::waits_for(const Question& question) {
  const CoordinatorJob* job = find_job(question.job);
  if (job != nullptr && job->live()) return true;
  asking_.erase(question.job);
  return false;
}

void Coordinator::answered(const Question& question, const Result<std::string>& answer) {
  asking_.erase(question.job);
  send_answer(question, answer);
}

void Coordinator::send_answer(const Question& question, const Result<std::string>& answer) {
  v1::CoordinatorMessage message;
  v1::JobAnswer& reply = *message.mutable_job_answer();
  reply.set_job_id(question.job);
  reply.set_rank(question.rank);
  reply.set_request(question.request);
  if (answer.ok() && answer.value().size() <= kQuestionBytesMax) {
    reply.set_text(answer.value());
  } else {
    const Status why =
        answer.ok() ? short_error("A304", "the answer is too long") : answer.status();
    *reply.mutable_error() = to_proto(why);
  }
  outbox_.send(question.agent, std::move(message));
}

}  // namespace gradbus
