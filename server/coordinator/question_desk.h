// Answers questions of ranks on a thread of its own: planning takes milliseconds to seconds, and
// neither leases nor other jobs may wait for it. Tuned settings are read and written there, too.
//
// A job has at most one question here, and all jobs have at most kQuestionsMax. Questions of jobs
// that have ended are dropped.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "server/coordinator/attach_stream.h"
#include "server/coordinator/questions/tuned_settings.h"

namespace gradbus {

class QuestionDesk {
 public:
  // `state_dir`: where tuned settings are kept; empty: in memory.
  QuestionDesk(Desk* desk, const std::string& state_dir);
  ~QuestionDesk() { stop(); }

  // Any thread; never blocks.
  void ask(Question question);

  // Questions that wait get no answer; later ones are ignored. Waits for the one in work.
  void stop();

 private:
  void serve();
  Result<std::string> answer_to(const Question& question);

  Desk* const desk_;
  TunedSettings tuned_;  // of the thread
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::deque<Question> waiting_;
  std::thread thread_;  // last
};

}  // namespace gradbus
