#include "server/coordinator/question_desk.h"

#include "common/errors.h"
#include "common/guarded.h"
#include "server/scheduling/job/job_question.h"

namespace gradbus {

QuestionDesk::QuestionDesk(Desk* desk, const std::string& state_dir)
    : desk_(desk), tuned_(state_dir), thread_([this] { serve(); }) {
  desk_->set_question_sink([this](Question question) { ask(std::move(question)); });
}

Result<std::string> QuestionDesk::answer_to(const Question& question) {
  Result<std::string> answer = error("X001", "the question was not answered");
  const Status done = guarded([&] {
    answer = TunedSettings::is_for(question.text) ? tuned_.answer(question.text, question.uid)
                                                  : scheduling::answer_job(question.text);
  });
  return done.ok() ? answer : Result<std::string>(done);
}

void QuestionDesk::ask(Question question) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return;
  waiting_.push_back(std::move(question));
  changed_.notify_one();
}

void QuestionDesk::serve() {
  for (;;) {
    Question question;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
      if (stopped_) return;
      question = std::move(waiting_.front());
      waiting_.pop_front();
    }
    bool wanted = false;
    desk_->act([&](Coordinator& coordinator, Nanos) { wanted = coordinator.waits_for(question); });
    if (!wanted) continue;
    const Result<std::string> answer = answer_to(question);
    desk_->act([&](Coordinator& coordinator, Nanos) { coordinator.answered(question, answer); });
  }
}

void QuestionDesk::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    waiting_.clear();
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace gradbus
